#pragma once

#include "tensor/tensor.h"

namespace flux2 {

Tensor silu(const Tensor& x);    // x · sigmoid(x)
Tensor exp(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor square(const Tensor& x);

// silu(gate) · up, element by element.
Tensor swiglu(const Tensor& gate, const Tensor& up);
// The same for [..., 2M] = [gate | up]: the first half goes through SiLU.
Tensor swiglu(const Tensor& gate_up);

}  // namespace flux2
