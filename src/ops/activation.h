#pragma once

#include <optional>

#include "tensor/tensor.h"

namespace flux2 {

Tensor silu(const Tensor& x);  // x · sigmoid(x)
Tensor gelu(const Tensor& x);  // x · Φ(x) with the normal distribution Φ, not its approximation with tanh; error below 1e-7
Tensor exp(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor square(const Tensor& x);

// silu(gate) · up, element by element. `as` quantises the result (ops/linear.h).
Tensor swiglu(const Tensor& gate, const Tensor& up, std::optional<DType> as = {});
// The same for [..., 2M] = [gate | up]: the first half goes through SiLU.
Tensor swiglu(const Tensor& gate_up, std::optional<DType> as = {});

}  // namespace flux2
