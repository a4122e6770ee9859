#pragma once

#include <optional>
#include <string>

#include "server/store/sql.h"

namespace flux2 {

// Equal bytes are stored once, so several jobs may show the same asset.
struct DroppedImage {
  std::string asset;
  bool is_used = false;  // another job shows it too
};

// Takes an image away from a job. Nothing if the job has no such image.
std::optional<DroppedImage> drop_job_image(SqlDatabase& database, const std::string& job, int index);

}  // namespace flux2
