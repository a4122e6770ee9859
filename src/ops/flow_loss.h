#pragma once

#include "tensor/tensor.h"

namespace flux2 {

// The loss of flow matching and its gradient, on the device of its arguments:
//   losses[b] = Σ_n weight[b, n] Σ_c (v − u)²[b, n, c],   gradient = ∂(Σ losses / divisor)/∂v = 2/divisor · weight · (v − u)
// velocity v and target u: F32 [B, N, C]; weight: F32 [B, N, 1] or [B, 1, 1]. Nothing is recorded: the gradient is what
// backward() starts from. Only enqueues, so that a step need not wait for the device before its backward pass.
struct FlowLossTensors {
  Tensor losses;    // [B, 1, 1]
  Tensor gradient;  // [B, N, C]
};
FlowLossTensors flow_mse(const Tensor& velocity, const Tensor& target, const Tensor& weight, double divisor);

}  // namespace flux2
