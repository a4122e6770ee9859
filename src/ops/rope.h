#pragma once

#include <vector>

#include "tensor/tensor.h"

namespace flux2 {

enum class RopePairs {
  Interleaved,  // (2i, 2i+1): FLUX.2
  Halves,       // (i, i + D/2): Qwen3, Mistral
};

// Rotates pairs of x [B, S, H, D] by the angles whose cosine and sine are F32 [S, D/2], the same for every head.
Tensor rope(const Tensor& x, const Tensor& cosine, const Tensor& sine, RopePairs pairs);

// A stretch of a sequence whose heads share one RMSNorm weight: x [B, S, H, D], weight [D].
struct NormedPart {
  Tensor x, weight;
};

// rope(concat(rms_norm(part) …)) along the sequence: queries or keys, ready for attention. cosine and sine cover all parts.
Tensor norm_rope(const std::vector<NormedPart>& parts, const Tensor& cosine, const Tensor& sine, RopePairs pairs,
                 float eps = 1e-6f);

// Queries and keys of one stretch side by side, x [B, S, 2H, D], each half with its own weight [D].
struct NormedPair {
  Tensor x, q_weight, k_weight;
};
struct QueryKey {
  Tensor q, k;  // [B, S, H, D]
};
// norm_rope of both halves, in one kernel if the device has one.
QueryKey norm_rope_pair(const std::vector<NormedPair>& parts, const Tensor& cosine, const Tensor& sine, RopePairs pairs,
                        float eps = 1e-6f);

}  // namespace flux2
