#pragma once

#include "image/image.h"

namespace flux2 {

enum class ResizeFilter { Bilinear, Bicubic, Lanczos };

// Resamples as Pillow does, byte for byte: separable, antialiased when shrinking, the horizontal pass first, each
// pass rounded to 8 bits, a pass that would not change the size skipped. RGBA is resampled with premultiplied colour.
Image resize(const Image& image, int width, int height, ResizeFilter filter = ResizeFilter::Lanczos);

// resize(to_rgb(image, rule), width, height, filter), but never with a second image of the original size in memory.
Image resize_to_rgb(const Image& image, AlphaRule rule, int width, int height, ResizeFilter filter = ResizeFilter::Lanczos);

// The middle of resize_to_rgb(image, rule, width, height, filter): side × side pixels, or less where the whole is smaller. If a
// margin is odd, its larger part is right and below. Only the middle is computed, so the whole may be larger than any image.
struct MiddleOf {
  int64_t width, height;
  int side;
};
Image resize_middle_to_rgb(const Image& image, AlphaRule rule, const MiddleOf& whole, ResizeFilter filter);

// The image scaled until it covers this size, Lanczos, and cut to its middle.
Image cover(const Image& image, int width, int height);

}  // namespace flux2
