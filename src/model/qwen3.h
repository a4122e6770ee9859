#pragma once

#include <string>
#include <vector>

#include "model/block_schedule.h"
#include "model/taps.h"
#include "nn/linear.h"
#include "nn/rope_table.h"
#include "weights/named_weights.h"

namespace flux2 {

// The geometry of a Qwen3 text encoder and which of its states FLUX.2 reads.
struct Qwen3Config {
  int64_t vocab = 151936;
  int64_t hidden = 2560;
  int64_t intermediate = 9728;
  int64_t heads = 32, kv_heads = 8, head_dim = 128;
  int64_t layers = 36;  // in the file; only those up to the last state read are loaded
  float norm_eps = 1e-6f;
  double rope_theta = 1e6;
  std::vector<int> states = {9, 18, 27};  // residual stream after so many layers

  int64_t layers_needed() const { return states.back(); }
  int64_t output_width() const { return hidden * static_cast<int64_t>(states.size()); }
  bool operator==(const Qwen3Config&) const = default;
};

// Reads the geometry off the tensors; theta and eps keep their defaults unless config.json says otherwise.
// Throws Incompatible, naming what the file is, when it is another kind of text encoder.
Qwen3Config detect_qwen3(const NamedWeights& weights);

// x ← x + W_o attention(…);  x ← x + W_down (silu(W_gate x) ⊙ W_up x), each after an RMSNorm.
struct Qwen3Layer {
  Qwen3Layer() = default;
  explicit Qwen3Layer(const Qwen3Config& config);

  Tensor operator()(const Tensor& x, const Rope& rope, const Tensor& key_mask) const;
  void visit(const std::string& prefix, const ParameterVisitor& visitor);

  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  float eps = 1e-6f;
  Tensor input_norm, attention_norm;  // [hidden]: before attention, before the MLP
  Tensor q_norm, k_norm;              // [head_dim]
  Linear q, k, v, o, gate, up, down;
};

struct Qwen3Encoder {
  explicit Qwen3Encoder(const Qwen3Config& config);

  // ids, mask I32 [B, T] (mask 0 marks padding) → [B, T, 3·hidden], the chosen states side by side. No token attends to padding,
  // but the rows of padding attend to the real tokens and are part of the result.
  Tensor operator()(const Tensor& ids, const Tensor& mask, DType dtype, const BeforeBlock& before_layer = {}) const;

  void visit(const ParameterVisitor& visitor);

  Qwen3Config config;
  Tensor embed_tokens;  // [vocab, hidden]
  std::vector<Qwen3Layer> layers;
  std::shared_ptr<BlockSchedule> schedule;  // when not all layers are in memory
};

}  // namespace flux2
