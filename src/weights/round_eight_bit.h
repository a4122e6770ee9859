#pragma once

#include <cstdint>

namespace flux2 {

// x · factor rounded to nearest, ties to even. The product must lie in the range of the type (±127, ±448).
void round_to_int8(const float* x, int64_t count, float factor, int8_t* out);
void round_to_e4m3(const float* x, int64_t count, float factor, uint8_t* out);

}  // namespace flux2
