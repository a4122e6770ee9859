#pragma once

#include <array>
#include <cstdint>

namespace flux2 {

// x · factor rounded to nearest, ties to even. The product must lie in the range of the type (±127, ±448).
void round_to_int8(const float* x, int64_t count, float factor, int8_t* out);
void round_to_e4m3(const float* x, int64_t count, float factor, uint8_t* out);

// NVFP4: value = e2m1 code · e4m3 scale of its 16 columns · one f32 scale of the whole tensor.

constexpr int64_t kNvfp4Group = 16;
constexpr std::array<float, 16> kE2m1 = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};  // by code

// The scale of a tensor with this largest magnitude: it makes the largest value equal to the largest code times the largest
// scale.
inline float nvfp4_global(float largest) { return largest / (448.0f * 6.0f); }

// One row of `columns` (whole groups). A group's scale is its largest magnitude over 6, in units of the global scale, rounded
// to nearest; codes are rounded to nearest, ties to the even code. Of two codes in a byte the even column has the high bits.
void nvfp4_scales(const float* x, int64_t columns, float global, uint8_t* scales);
void nvfp4_codes(const float* x, int64_t columns, float global, const uint8_t* scales, uint8_t* codes);

}  // namespace flux2
