#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace flux2::gemm {

constexpr int kDotBlock = 32;

// A row of activations as int8 with a scale for each 32 of them, filled up with zeros to whole blocks.
struct DotRow {
  const int8_t* values;
  const float* scales;
  const float* sums;  // scale · Σ values of each block: what an offset of all weights of a block is multiplied with
};

// Rounds k values: x ≈ scale · q, the largest of a block ±127. A block with a NaN or an infinity gets a scale of NaN.
void quantise_for_dots(const float* x, int64_t k, int8_t* values, float* scales, float* sums);

// Products of one row of activations with one row of weights, for formats whose integers are multiplied as they are. They run
// at the speed of memory: a weight is read once and never converted to f32.
struct RowDots {
  float (*int8)(const void* weights, const DotRow& x, int64_t k);
  float (*q8_0)(const void* weights, const DotRow& x, int64_t k);
  float (*q4_0)(const void* weights, const DotRow& x, int64_t k);
};

}  // namespace flux2::gemm
