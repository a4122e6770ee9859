#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace flux2::gemm {

// One row of sums as it lies in the tiles side by side: pieces of `length` floats, `apart` floats from one to the next.
struct Pieces {
  const float* first;
  int64_t length, apart;
};

// Where a product lands and what is done to it on the way:
//   y[m, n] = row_scales[m] · column_scales[n] · Σ_k a[m, k] · b[n, k] + bias[n] + residual[m, n],
// stored as F32, BF16 or F16. Null pointers stand for factors of 1 and terms of 0.
struct Output {
  void* data;
  DType dtype;
  int64_t row_stride;  // in elements
  const float* bias = nullptr;
  const float* row_scales = nullptr;
  const float* column_scales = nullptr;
  const void* residual = nullptr;  // of y's dtype, lying as y does

  // Rows may form lines of `line` rows that begin line_stride elements apart; 0: they do not.
  int64_t line = 0, line_stride = 0;

  // Finishes and stores `columns` sums of one row from column c on.
  void store(Pieces sums, int64_t row, int64_t c, int64_t columns) const;

 private:
  int64_t offset(int64_t row) const;  // of its first element
};

}  // namespace flux2::gemm
