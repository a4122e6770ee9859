#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace flux2::gemm {

// Where a product lands and what is done to it on the way:
//   y[m, n] = row_scales[m] · column_scales[n] · Σ_k a[m, k] · b[n, k] + bias[n], stored as F32, BF16 or F16.
// Null pointers stand for factors of 1 and terms of 0.
struct Output {
  void* data;
  DType dtype;
  int64_t row_stride;  // in elements
  const float* bias = nullptr;
  const float* row_scales = nullptr;
  const float* column_scales = nullptr;

  // Finishes `count` sums of one row from column c on, in place, and stores them.
  void store(float* sums, int64_t row, int64_t c, int64_t count) const;
};

}  // namespace flux2::gemm
