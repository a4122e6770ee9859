#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/resolve.h"
#include "cli/command.h"
#include "cli/progress_display.h"
#include "hub/recognise.h"
#include "image/difference.h"

namespace flux2 {

// An image generated twice: by a model and by its converted version.
struct CalibratedPicture {
  std::string prompt;
  uint64_t seed = 0;
  PictureDifference difference;
};

// `convert --calibrate`: the effect of a conversion on images, for the prompts of a file.
class Calibration {
 public:
  // Finds the other parts next to the source, or where --model and related options say, and resolves every prompt. Throws if a
  // part is missing or a prompt is invalid.
  Calibration(Invocation& run, const Component& source);

  // Generates the images of both, with the same seeds. Only one model is in memory at a time.
  std::vector<CalibratedPicture> compare(const std::filesystem::path& converted);

 private:
  std::vector<Image> pictures_of(const ModelFiles& model);

  Invocation run_;
  ProgressDisplay display_;
  ComponentKind kind_;
  ModelFiles model_;  // with the source
  std::vector<ResolvedRequest> requests_;
};

std::vector<std::string> lines_of(const std::vector<CalibratedPicture>& pictures);  // a table, with the mean at its end
Json as_json(const std::vector<CalibratedPicture>& pictures);

}  // namespace flux2
