#pragma once

#include <array>
#include <vector>

#include "image/image.h"

namespace flux2 {

// How an image becomes the input of Pixtral's vision tower.
struct VisionRules {
  int longest = 1540;  // a longer side is scaled down to this
  int patch = 14;      // pixels of a patch, a side
  int merge = 2;       // patches of a token of the language model, a side
};

// The image in RGB as the tower sees it, byte for byte as transformers' image processor with Pillow makes it: transparency is
// composited over white, and both sides become multiples of patch · merge (bicubic). The proportions change slightly.
Image vision_image(const Image& image, const VisionRules& rules);

// What samples of 0 … 1 are normalised with: (sample − mean) / deviation. The values are those of CLIP's images.
struct SampleScale {
  std::array<double, 3> mean = {0.48145466, 0.4578275, 0.40821073}, deviation = {0.26862954, 0.26130258, 0.27577711};
};

// Its normalised samples, patch by patch, row by row: [patches, patch · patch · 3], a patch's samples by row, column and channel.
std::vector<float> vision_patches(const Image& rgb, int patch, const SampleScale& scale = {});

// Images side by side on white, each in the middle of the height, alpha ignored, as one RGB image. One image stays as it is.
Image joined_images(const std::vector<Image>& images);

// Scaled down to at most this many pixels (Lanczos), if it has more.
Image with_at_most(const Image& image, int64_t pixels);

}  // namespace flux2
