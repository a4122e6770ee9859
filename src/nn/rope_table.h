#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/rope.h"
#include "tensor/tensor.h"

namespace flux2 {

// Rotary position embedding for one sequence: cosine and sine of every pair's angle, F32 [S, D/2].
struct Rope {
  Tensor cosine, sine;
  RopePairs pairs = RopePairs::Interleaved;

  Tensor operator()(const Tensor& x) const { return rope(x, cosine, sine, pairs); }
  // The same after an RMSNorm, each part of the sequence with its own weight.
  Tensor after_norm(const std::vector<NormedPart>& parts, float eps = 1e-6f) const {
    return norm_rope(parts, cosine, sine, pairs, eps);
  }
  QueryKey after_norms(const std::vector<NormedPair>& parts, float eps = 1e-6f) const {
    return norm_rope_pair(parts, cosine, sine, pairs, eps);
  }
};

// Where a token stands on FLUX.2's four axes: reference index, row, column, text slot.
struct TokenPosition {
  int32_t t = 0, h = 0, w = 0, l = 0;

  bool operator==(const TokenPosition&) const = default;
};

// Head width 128 in four segments of 32, one per axis; frequency k of a segment is theta^(−k/16).
// Angles are formed in double and rounded once, as diffusers does.
Rope flux2_rope(Stream& stream, std::span<const TokenPosition> positions, double theta = 2000.0);

// Positions first … first + length − 1 with frequency theta^(−2p/D) for pair p: Qwen3, Mistral. Angles are formed in f32 as
// transformers does.
Rope text_rope(Stream& stream, int64_t length, int64_t head_dim, double theta, int64_t first = 0);

}  // namespace flux2
