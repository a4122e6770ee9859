#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/limits.h"

namespace flux2 {

// No image is larger than this. Images from files are limited further (ImageLimits).
constexpr int kMaxImageSide = 65500;
constexpr int64_t kMaxImagePixels = int64_t{1} << 31;

// An 8-bit image, rows from the top, samples interleaved: 1 grey, 3 RGB or 4 RGBA (alpha not premultiplied). Colours are sRGB.
struct Image {
  int width = 0, height = 0, channels = 0;
  std::vector<uint8_t> pixels;  // [height, width, channels]

  Image() = default;
  Image(int width, int height, int channels);  // all zero; refuses larger ones than the sizes above

  size_t row_bytes() const { return static_cast<size_t>(width) * static_cast<size_t>(channels); }
  uint8_t* row(int y) { return pixels.data() + static_cast<size_t>(y) * row_bytes(); }
  const uint8_t* row(int y) const { return pixels.data() + static_cast<size_t>(y) * row_bytes(); }
  uint8_t* at(int x, int y) { return row(y) + static_cast<size_t>(x) * static_cast<size_t>(channels); }
  const uint8_t* at(int x, int y) const { return row(y) + static_cast<size_t>(x) * static_cast<size_t>(channels); }

  bool operator==(const Image&) const = default;
};

// Throws BadFile unless both sides are 1 or more and within the limits.
void check_image_size(int64_t width, int64_t height, const ImageLimits& limits = {});

// How transparency is removed: composited over white, or ignored (as the BFL reference does).
enum class AlphaRule { OverWhite, Drop };

Image to_rgb(const Image& image, AlphaRule rule = AlphaRule::OverWhite);  // grey is replicated
void rgb_row(const Image& image, int y, AlphaRule rule, uint8_t* out);    // the same for one row

// The part of the image that begins at (left, top); it must lie inside.
Image crop(const Image& image, int left, int top, int width, int height);
Image centre_crop(const Image& image, int width, int height);  // if the margin is odd, the larger part is right and below

// Rotates a stored image upright; `orientation` is the EXIF value 1…8, anything else leaves it as it is.
Image apply_orientation(Image image, int orientation);

// a·b/255, rounded, for 8-bit values: the product that Pillow's blending uses.
inline uint8_t mul_div_255(unsigned a, unsigned b) {
  const unsigned product = a * b + 128;
  return static_cast<uint8_t>((product + (product >> 8)) >> 8);
}

}  // namespace flux2
