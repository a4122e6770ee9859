#pragma once

#include "tensor/tensor.h"

namespace flux2 {

// Normalises x [B, …, C] (channels last) over all positions and the C / groups channels of each group, then
// multiplies by weight [C] and adds bias [C].
Tensor group_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, int groups = 32, float eps = 1e-6f);
Tensor group_norm_silu(const Tensor& x, const Tensor& weight, const Tensor& bias, int groups = 32, float eps = 1e-6f);

}  // namespace flux2
