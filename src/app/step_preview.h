#pragma once

#include <filesystem>
#include <optional>

#include "engine/engine.h"
#include "image/image.h"
#include "pipeline/preview.h"
#include "record/request_spec.h"

namespace flux2 {

// Creates a preview after each step, as an image and, if the request names one, as a file.
class StepPreview {
 public:
  // The session must outlive it. `cache` is a folder; if empty, nothing is cached.
  StepPreview(const RequestSpec& spec, ModelSession& session, const std::filesystem::path& cache);

  // The preview, at most 512 pixels a side.
  Image step_done(const StepDone& step);

 private:
  ModelSession& session_;
  bool full_;
  std::optional<LatentColours> colours_;
  std::filesystem::path file_;
};

}  // namespace flux2
