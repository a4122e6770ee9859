#pragma once

#include <filesystem>
#include <string>

#include "train/log/run_history.h"

namespace flux2 {

// The sample images of a run as HTML: a row for every prompt, a column for every step. The images are inside, scaled down if they
// are large. Of a long run some steps are left out, never the first and the last. Only files inside `folder` are read.
std::string sample_grid(const RunHistory& history, const std::filesystem::path& folder);

}  // namespace flux2
