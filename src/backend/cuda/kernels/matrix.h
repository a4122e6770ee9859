#pragma once

#include "backend/cuda/cublas.h"
#include "tensor/tensor.h"

namespace flux2::cuda {

// A tensor [M, N] as cuBLASLt takes it: itself when its rows are contiguous and do not overlap, else a copy.
Tensor matrix_operand(const Tensor& t);

// The matrix that such a tensor is.
Matrix matrix_of(const Tensor& t);

}  // namespace flux2::cuda
