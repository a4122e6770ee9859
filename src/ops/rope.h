#pragma once

#include "tensor/tensor.h"

namespace flux2 {

enum class RopePairs {
  Interleaved,  // (2i, 2i+1): FLUX.2
  Halves,       // (i, i + D/2): Qwen3, Mistral
};

// Rotates pairs of x [B, S, H, D] by the angles whose cosine and sine are F32 [S, D/2], the same for every head.
Tensor rope(const Tensor& x, const Tensor& cosine, const Tensor& sine, RopePairs pairs);

}  // namespace flux2
