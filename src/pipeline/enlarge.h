#pragma once

#include <functional>

#include "image/image.h"
#include "model/upscaler.h"

namespace flux2 {

// The sides of tiles in pixels of the small image, and what each tile sees of its neighbours.
constexpr int kUpscaleTile = 512, kUpscaleGpuTile = 1024, kUpscaleOverlap = 16;
constexpr int kSmallestUpscaleTile = 64, kLargestUpscaleTile = 8192;

struct EnlargeOptions {
  int tile = kUpscaleTile;
  int overlap = kUpscaleOverlap;
  std::function<void(int done, int all)> report = {};  // blocks of the network, of all tiles
  std::function<bool()> cancelled = {};
};

// The image `scale` times as large. It is computed in tiles of at most options.tile pixels each way, each with a border of
// options.overlap features (of one pixel each; x2: of 2×2 pixels, x1: 4×4) that is cut off afterwards. If memory runs out, tiles
// become smaller. Transparency is enlarged with Lanczos. Grey images become RGB. Throws Cancelled if the caller wants to stop.
Image enlarge(const Upscaler& network, Stream& stream, const Image& image, const EnlargeOptions& options = {});

// What the network makes of a whole image, before it is rounded: [3, H, W] in F32, in host memory. For comparisons.
Tensor enlarged_values(const Upscaler& network, Stream& stream, const Image& image);

}  // namespace flux2
