#pragma once

#include <span>
#include <vector>

#include "image/image.h"

namespace flux2 {

// How a sample of [-1, 1] becomes 8 bits. The two conventions differ by one count on about half the pixels.
enum class Rounding {
  Trunc,    // trunc(127.5 · (x + 1)), x clamped to [-1, 1]: the BFL reference
  Nearest,  // 255 · clamp(x/2 + 0.5), rounded half to even: diffusers
};

// chw: planes [3, height, width] of [-1, 1]. A NaN becomes 0.
Image to_rgb8(std::span<const float> chw, int height, int width, Rounding rounding);

// RGB → planes [3, height, width], x = 2·(u8/255) − 1.
std::vector<float> from_rgb8(const Image& image);

// Signs of a failed decode.
bool has_nan(std::span<const float> values);
bool would_be_black(std::span<const float> chw);  // whether to_rgb8, truncating, gives nothing but zeros

}  // namespace flux2
