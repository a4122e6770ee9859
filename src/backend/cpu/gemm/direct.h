#pragma once

#include "backend/cpu/gemm/driver.h"
#include "backend/cpu/gemm/row_dots.h"

namespace flux2::gemm {

constexpr int64_t kMaxDirectRows = 4;

// y = x · wᵀ + bias for at most kMaxDirectRows rows of x: each weight is read once and used where it lies, since with so
// few rows packing it would cost more than the product. f32 arithmetic, except for formats that `dots` multiplies as integers
// (null: none): then x is rounded to int8, with a scale for each 32 values.
void multiply_direct(const Tensor& x, const Tensor& w, const Output& output, const Workers& workers, const RowDots* dots);

}  // namespace flux2::gemm
