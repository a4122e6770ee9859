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

// A picture made twice, by a model and by what it was converted to.
struct CalibratedPicture {
  std::string prompt;
  uint64_t seed = 0;
  PictureDifference difference;
};

// `convert --calibrate`: what converting a part does to pictures, on the prompts of a file.
class Calibration {
 public:
  // Finds the other parts beside the source, or where --model and the like say, and resolves every prompt. Throws when a part is
  // missing or a prompt asks for what cannot be done.
  Calibration(Invocation& run, const Component& source);

  // Makes the pictures of both, with the same seeds. One model is in memory at a time.
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
