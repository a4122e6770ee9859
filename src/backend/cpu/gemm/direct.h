#pragma once

#include "backend/cpu/gemm/driver.h"

namespace flux2::gemm {

constexpr int64_t kMaxDirectRows = 4;

// y = x · wᵀ + bias for at most kMaxDirectRows rows of x: each weight is read once and used where it lies, since with so
// few rows packing it would cost more than the product. f32 arithmetic whatever the weight's dtype.
void multiply_direct(const Tensor& x, const Tensor& w, const Output& output, const Workers& workers);

}  // namespace flux2::gemm
