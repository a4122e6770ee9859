#pragma once

#include <optional>

#include "tensor/tensor.h"

namespace flux2 {

// The result of an attention inside a block that runs twice (checkpoint()). The first call puts its result here; the second call
// takes it instead of computing it again.
struct KeptAttention {
  Tensor y;        // [B, S, H, D]
  Tensor log_sum;  // [B, H, S]
};

struct AttentionGroups;  // ops/attention_groups.h

struct AttentionOptions {
  float scale = 0;                // 0: 1 / √D
  bool causal = false;            // query i sees keys 0 … i + (T − S): the S queries are the last of T tokens
  Tensor key_mask;                // I32 [B, T], 0 hides a key; undefined: all are visible
  KeptAttention* kept = nullptr;  // only for results that need a gradient
  // Which rows see which; null: all see all. Without gradient, causal or key_mask.
  const AttentionGroups* groups = nullptr;
  bool eight_bits = false;  // may be rounded to e4m3 (tensor/kernels.h); ignored if a gradient is needed
};

// softmax(scale · q kᵀ) v per head: q [B, S, H, D]; k, v [B, T, G, D] with G dividing H (query head h reads key
// head h / (H/G)). Returns [B, S, H·D], heads side by side.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {});

// [ attention(q, k, v) ‖ swiglu(gate_up) ] on the last axis, [B, S, H·D + M]: the two branches of a parallel block. Both are
// written where the next product reads them, in the dtype it prefers (ops/linear.h). Options without scale, causal and key_mask.
Tensor attention_beside_swiglu(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& gate_up,
                               std::optional<DType> as = {}, const AttentionOptions& options = {});

// The same with the MLP's first product: [ attention(q, k, v) ‖ linear_swiglu(x, w) ], x [B, S, K], w [2M, K].
Tensor attention_beside_mlp(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& x, const Tensor& w,
                            const AttentionOptions& options = {});

}  // namespace flux2
