#pragma once

#include "backend/cuda/cublas.h"
#include "backend/cuda/op_timer.h"
#include "tensor/tensor.h"

namespace flux2::cuda {

// A tensor [M, N] as cuBLASLt takes it: itself when its rows are contiguous and do not overlap, else a copy.
Tensor matrix_operand(const Tensor& t);

// The matrix that such a tensor is.
Matrix matrix_of(const Tensor& t);

// What a product of a and b into y costs.
struct ProductSize {
  int64_t rows, columns, inner;
};
OpCost product_cost(const Tensor& a, const Tensor& b, const Tensor& y, const ProductSize& size);

}  // namespace flux2::cuda
