#include "image/pixels.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace flux2 {

namespace {

// The comparisons are written so that a NaN takes the lower bound.
float clamp_or_low(float x, float low, float high) { return x > low ? std::min(x, high) : low; }

uint8_t truncated(float x) { return static_cast<uint8_t>(127.5f * (clamp_or_low(x, -1, 1) + 1.0f)); }
uint8_t nearest(float x) { return static_cast<uint8_t>(std::nearbyint(255.0f * clamp_or_low(x / 2 + 0.5f, 0, 1))); }

template <class ToByte>
void interleave(std::span<const float> chw, Image& image, ToByte to_byte) {
  const size_t plane = chw.size() / 3;
  for (size_t i = 0; i < plane; ++i)
    for (size_t c = 0; c < 3; ++c) image.pixels[3 * i + c] = to_byte(chw[c * plane + i]);
}

}  // namespace

Image to_rgb8(std::span<const float> chw, int height, int width, Rounding rounding) {
  Image image(width, height, 3);
  check(chw.size() == image.pixels.size(), "to_rgb8: {} samples for a picture of {}×{}", chw.size(), width, height);
  if (rounding == Rounding::Trunc) {
    interleave(chw, image, truncated);
  } else {
    interleave(chw, image, nearest);
  }
  return image;
}

std::vector<float> from_rgb8(const Image& image) {
  check(image.channels == 3, "from_rgb8: the picture has {} channels; convert it with to_rgb first", image.channels);
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
