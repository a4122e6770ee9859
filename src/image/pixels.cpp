#include "image/pixels.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace flux2 {

namespace {

// The comparison is written so that a NaN takes the bound.
float at_least(float low, float x) { return x > low ? x : low; }
float at_most(float high, float x) { return x < high ? x : high; }

uint8_t truncated(float x) { return static_cast<uint8_t>(static_cast<int32_t>(127.5f * (at_most(1, at_least(-1, x)) + 1.0f))); }

// A piece at a time, through arrays that stay in the cache: each loop does one thing, so that the compiler makes vectors of it.
// Two comparisons in one loop become jumps, and planes woven together while they are converted go sample by sample.
template <class ToByte>
void interleave(std::span<const float> chw, Image& image, ToByte to_byte) {
  constexpr size_t kPiece = 2048;
  const size_t plane = chw.size() / 3;
  float clamped[kPiece];
  uint8_t bytes[3][kPiece];
  for (size_t start = 0; start < plane; start += kPiece) {
    const size_t n = std::min(kPiece, plane - start);
    for (size_t c = 0; c < 3; ++c) {
      const float* x = chw.data() + c * plane + start;
      for (size_t i = 0; i < n; ++i) clamped[i] = at_least(-1, x[i]);
      for (size_t i = 0; i < n; ++i) clamped[i] = at_most(1, clamped[i]);
      for (size_t i = 0; i < n; ++i) bytes[c][i] = static_cast<uint8_t>(to_byte(clamped[i]));
    }
    uint8_t* out = image.pixels.data() + 3 * start;
    for (size_t i = 0; i < n; ++i) {
      out[3 * i] = bytes[0][i];
      out[3 * i + 1] = bytes[1][i];
      out[3 * i + 2] = bytes[2][i];
    }
  }
}

}  // namespace

Image to_rgb8(std::span<const float> chw, int height, int width, Rounding rounding) {
  Image image(width, height, 3);
  require(chw.size() == image.pixels.size(), "to_rgb8: {} samples for an image of {}×{}", chw.size(), width, height);
  if (rounding == Rounding::Trunc) {
    interleave(chw, image, [](float x) { return static_cast<int32_t>(127.5f * (x + 1.0f)); });
  } else {
    interleave(chw, image, [](float x) { return static_cast<int32_t>(std::nearbyint(255.0f * (x / 2 + 0.5f))); });
  }
  return image;
}

std::vector<float> from_rgb8(const Image& image) {
  require(image.channels == 3, "from_rgb8: the image has {} channels; convert it with to_rgb first", image.channels);
  std::array<float, 256> values;
  for (int i = 0; i < 256; ++i) values[i] = 2.0f * (static_cast<float>(i) / 255.0f) - 1.0f;
  std::vector<float> chw(image.pixels.size());
  const size_t plane = chw.size() / 3;
  for (size_t i = 0; i < plane; ++i) {
    for (size_t c = 0; c < 3; ++c) chw[c * plane + i] = values[image.pixels[3 * i + c]];
  }
  return chw;
}

bool has_nan(std::span<const float> values) {
  int found = 0;  // without an early end the loop is done in vectors
  for (float x : values) found |= x != x;
  return found != 0;
}

bool would_be_black(std::span<const float> chw) {
  return std::all_of(chw.begin(), chw.end(), [](float x) { return truncated(x) == 0; });
}

}  // namespace flux2
