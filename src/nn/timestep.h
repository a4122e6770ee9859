#pragma once

#include <span>

#include "tensor/tensor.h"

namespace flux2 {

inline constexpr int kTimestepWidth = 256;

// [cos(a·f₀) … cos(a·f₁₂₇), sin(a·f₀) … sin(a·f₁₂₇)] for every argument a (1000 × the flow time or the guidance), f_k = exp(−ln
// 10000 · k / 128). Frequencies and angles are f32 as in the reference, because the angles are so large that their rounding
// matters.
Tensor timestep_embedding(Stream& stream, std::span<const float> arguments, DType dtype);

}  // namespace flux2
