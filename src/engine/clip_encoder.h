#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "image/image.h"
#include "model/clip_vision.h"
#include "model/image_prompt.h"

namespace flux2 {

// An image as the tower gets it: [patches, patch · patch · 3]. Transparency is dropped, the shorter side is scaled with Pillow's
// bicubic filter, the middle is cut out, and samples are normalised.
std::vector<float> clip_patches(const Image& image, const ClipConfig& config);

// A CLIP vision tower on the CPU, in f32. It takes about 160 GFLOP for an image of ViT-L/14. One thread uses it at a time.
class ClipEncoder {
 public:
  explicit ClipEncoder(const std::filesystem::path& file, int threads = 0, const Log& log = {});

  const ClipConfig& config() const { return network_.config; }
  int64_t width(ImageFeature feature) const;
  std::vector<float> feature(const Image& image, ImageFeature feature) const;  // [width(feature)]

 private:
  Engine engine_;
  std::shared_ptr<Stream> stream_;
  ClipVision network_;
};

}  // namespace flux2
