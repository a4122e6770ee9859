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

// A product of one row of activations with one row of k weights.
using RowDot = float (*)(const void* weights, const DotRow& x, int64_t k);

// The same with activations in f32.
using RowFloatDot = float (*)(const void* weights, const float* x, int64_t k);

// Products with few rows run at the speed of memory: each weight is read once, and nothing is written but the sums. The first
// formats are multiplied as the integers they consist of. Null where there is no such product.
struct RowDots {
  RowDot int8, q8_0, q4_0;
  RowDot q4_1 = nullptr, q5_0 = nullptr, q5_1 = nullptr, iq4_nl = nullptr;
  RowDot q2_k = nullptr, q3_k = nullptr, q4_k = nullptr, q5_k = nullptr, q6_k = nullptr, iq4_xs = nullptr;
  RowDot nvfp4 = nullptr;
  RowFloatDot f16 = nullptr, f8_e4m3 = nullptr, f8_e5m2 = nullptr, f8_128 = nullptr;

  RowDot of_integers(DType dtype) const;
  RowFloatDot of_floats(DType dtype) const;
};

}  // namespace flux2::gemm
