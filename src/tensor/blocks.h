#pragma once

#include <array>
#include <cstdint>

#include "tensor/dtype.h"

namespace flux2 {

constexpr int kMaxBlockElements = 256;

// Decodes `count` elements (whole blocks) of a block type. Each product and sum is rounded to f32 as the format defines, so every
// program that follows the definition gets the same bits. `blocks` needs no alignment.
void decode_blocks(DType dtype, const void* blocks, int64_t count, float* out);

// The sixteen values of IQ4_NL and IQ4_XS: denser around zero, where most weights lie.
inline constexpr std::array<int8_t, 16> kNonlinearCodes = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                           1,    13,   25,  38,  53,  69,  89,  113};

// Q4_K and Q5_K keep eight pairs of 6-bit numbers, a scale and a minimum, in 12 bytes: the low 6 bits of bytes 0–3 and
// 4–7 are the first four scales and minima; the other four have their low nibbles in bytes 8–11 and their upper two
// bits on top of bytes 0–7.
struct ScalesAndMins {
  uint8_t scale[8], min[8];
};
ScalesAndMins unpack_scales(const uint8_t packed[12]);
void pack_scales(const ScalesAndMins& values, uint8_t packed[12]);

// Q3_K keeps sixteen signed 6-bit scales, stored with 32 added, in 12 bytes: low nibbles in bytes 0–7, two to a byte, the
// upper two bits in bytes 8–11, four to a byte.
std::array<int8_t, 16> unpack_q3_scales(const uint8_t packed[12]);
void pack_q3_scales(const std::array<int8_t, 16>& scales, uint8_t packed[12]);

}  // namespace flux2
