#pragma once

#include <functional>
#include <string>

#include "model/decoder_config.h"
#include "nn/linear.h"
#include "nn/rope_table.h"

namespace flux2 {

// Keys, after their rotation, and values of some tokens in one layer: [B, T, G, D] each.
struct TokenKeys {
  Tensor k, v;
};

// Given the keys and values of the tokens of this pass, returns those that the tokens attend to: the keys and values of earlier
// tokens, if there are any, and then these. This is where a cache keeps them.
using KeyMemory = std::function<TokenKeys(const TokenKeys& now)>;

// What a layer needs to know about its tokens.
struct DecoderPass {
  Rope rope;         // of their positions
  Tensor key_mask;   // I32 [B, T] over all keys, 0 hides one; undefined: all are visible
  KeyMemory memory;  // empty: tokens attend to the tokens of this pass only
};

// x ← x + W_o attention(…);  x ← x + W_down (silu(W_gate x) ⊙ W_up x), each after an RMSNorm. Attention is causal: a token sees
// itself, the tokens before it in this pass, and all earlier ones from the memory.
struct DecoderLayer {
  DecoderLayer() = default;
  explicit DecoderLayer(const DecoderConfig& config);

  Tensor operator()(const Tensor& x, const DecoderPass& pass) const;
  Tensor mlp(const Tensor& x) const;  // the second half: x + W_down (…); a token that sees no key takes only this
  void visit(const std::string& prefix, const ParameterVisitor& visitor);

  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool normalises_heads = true;
  float eps = 1e-6f;
  Tensor input_norm, attention_norm;  // [hidden]: before attention, before the MLP
  Tensor q_norm, k_norm;              // [head_dim], if heads are normalised
  Linear q, k, v, o, gate, up, down;
};

}  // namespace flux2
