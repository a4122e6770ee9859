#pragma once

#include "tensor/tensor.h"

namespace flux2 {

// y = x · wᵀ + bias over the last axis: x [..., K], w [N, K], bias [N] or undefined. w may be stored in any
// dtype, quantised blocks included; y has the dtype of x, or BF16 where x has 8 bits (ops/eight_bit.h). A weight that wants a
// gradient must be a float type.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias = {});

// swiglu(linear(x, w)) for w [2M, K] = [gate | up].
Tensor linear_swiglu(const Tensor& x, const Tensor& w);
// Whether that is one kernel here, which never stores gate and up: then the rows of a fused weight that end in a SwiGLU are
// worth a product of their own.
bool fuses_swiglu(const Tensor& x, const Tensor& w);

// [..., K] as a matrix [M, K], without gradient: a view where the rows are evenly spaced, else a copy.
Tensor matrix_rows(const Tensor& x);

}  // namespace flux2
