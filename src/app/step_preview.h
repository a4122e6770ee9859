#pragma once

#include <filesystem>
#include <optional>

#include "engine/engine.h"
#include "image/image.h"
#include "pipeline/preview.h"
#include "record/request_spec.h"

namespace flux2 {

// Shows what a run is about to become after each step, as an image and, where the request names one, as a file.
class StepPreview {
 public:
  // The model must outlive it. `cache` is a folder; empty: nothing is remembered.
  StepPreview(const RequestSpec& spec, LoadedModel& model, const std::filesystem::path& cache);

  // The preview, at most 512 pixels a side.
  Image step_done(const StepDone& step);

 private:
  LoadedModel& model_;
  bool full_;
  std::optional<LatentColours> colours_;
  std::filesystem::path file_;
};

}  // namespace flux2
