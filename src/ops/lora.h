#pragma once

#include <vector>

#include "ops/linear.h"
#include "tensor/tensor.h"

namespace flux2 {

// A low-rank change of a weight [N, K]: x ↦ scale · (x · downᵀ) · upᵀ.
struct Lora {
  Tensor down;  // [r, K]
  Tensor up;    // [N, r]
  double scale = 1.0;
  // The same values in another dtype, if somebody keeps such copies. Without them, a product rounds its own operands.
  Tensor rounded_down = {}, rounded_up = {};
};

// linear(x, w, bias) plus the changes, each added to the product in place if the device supports that. The adapters may have
// another float dtype than x, such as F32 with BF16: they are rounded for the products; their gradients are not.
Tensor lora_linear(const Tensor& x, const Tensor& w, const Tensor& bias, const std::vector<Lora>& changes,
                   Values values = Values::Needed);

}  // namespace flux2
