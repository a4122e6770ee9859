#pragma once

#include <optional>

#include "tensor/tensor.h"

namespace flux2 {

struct NormOptions {
  float eps = 1e-6f;
  std::optional<DType> as = {};  // dtype of the result, which may be quantised (ops/linear.h); none: the dtype of x
};

// (x − mean) / sqrt(variance + eps) over the last axis, biased variance, no weight. Statistics in f32.
Tensor layer_norm(const Tensor& x, float eps = 1e-6f);

// y = x / sqrt(mean(x²) + eps) · weight over the last axis. The mean is computed in f32 for every dtype of x.
Tensor rms_norm(const Tensor& x, const Tensor& weight, float eps = 1e-6f);
Tensor rms_norm(const Tensor& x, const Tensor& weight, const NormOptions& options);

// (1 + scale) · layer_norm(x) + shift; x [B, S, C], shift and scale [B, 1, C].
Tensor modulated_norm(const Tensor& x, const Tensor& shift, const Tensor& scale, const NormOptions& options = {});

// The end of one residual block and the beginning of the next: sum = x + gate · z and modulated_norm(sum, shift, scale).
// The sum has the dtype of x.
struct SumAndNorm {
  Tensor sum, normed;
};
SumAndNorm gated_add_norm(const Tensor& x, const Tensor& gate, const Tensor& z, const Tensor& shift, const Tensor& scale,
                          const NormOptions& options = {});

// Normalises x [B, …, C] (channels last) over all positions and the C / groups channels of each group, then
// multiplies by weight [C] and adds bias [C].
Tensor group_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, int groups = 32, float eps = 1e-6f);
Tensor group_norm_silu(const Tensor& x, const Tensor& weight, const Tensor& bias, int groups = 32, float eps = 1e-6f);

}  // namespace flux2
