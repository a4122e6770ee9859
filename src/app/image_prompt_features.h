#pragma once

#include <cstdint>
#include <filesystem>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "app/resolve.h"
#include "base/log.h"
#include "pipeline/progress.h"

namespace flux2 {

class ClipEncoder;

// Computes the vectors of image prompts. The encoder stays loaded, and vectors are kept by content, so that the next request with
// the same image needs neither.
class ImagePromptFeatures {
 public:
  ImagePromptFeatures();
  ~ImagePromptFeatures();

  struct Options {
    int threads = 0;  // 0: all
    const Log& log;
    const Progress& progress;
  };
  // Sets the vectors in `request`, whose image prompts are those of `use`. Throws Cancelled between two images.
  void fill(const ImagePromptUse& use, Request& request, const Options& options);

  void release();                                 // unloads the encoder and keeps the vectors
  int64_t held_bytes() const;                     // of the encoder's file, while it is loaded
  int64_t computed() const { return computed_; }  // vectors so far

 private:
  const std::vector<float>& feature_of(const GivenPicture& image, const ImagePromptUse& use, const Options& options);

  struct Kept {
    std::string key;
    std::vector<float> feature;
  };
  std::list<Kept> kept_;  // the one that was used last comes first
  std::unique_ptr<ClipEncoder> encoder_;
  std::string encoder_key_;
  int64_t encoder_bytes_ = 0, computed_ = 0;
};

}  // namespace flux2
