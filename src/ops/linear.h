#pragma once

#include "tensor/tensor.h"

namespace flux2 {

// y = x · wᵀ + bias over the last axis: x [..., K], w [N, K], bias [N] or undefined. w may be stored in any
// dtype, quantised blocks included; y has the dtype of x. A weight that wants a gradient must be a float type.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias = {});

}  // namespace flux2
