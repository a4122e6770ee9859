#include "model/qwen3.h"

#include <fmt/format.h>

#include <algorithm>

#include "nn/load.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/attention.h"
#include "ops/embedding.h"
#include "ops/norm.h"
#include "ops/view.h"

namespace flux2 {

Qwen3Config detect_qwen3(const NamedWeights& weights) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::Incompatible, fmt::format("{}: {}", weights.source().description(), what),
                "klein models use Qwen3 (4B for klein 4B, 8B for klein 9B) as text encoder");
  };
  const auto shape = [&](const std::string& name, int rank) {
    if (!weights.has(name)) refuse("this is not a Qwen3 text encoder: it has no " + name);
    return config_shape(weights, name, rank);
  };
  Qwen3Config c;
  const Shape table = shape("model.embed_tokens.weight", 2);
  if (weights.has("model.layers.0.self_attn.q_proj.bias")) refuse("this is Qwen2, whose attention has biases, not Qwen3");
  if (!weights.has("model.layers.0.self_attn.q_norm.weight"))
    refuse(fmt::format("this is a Llama- or Mistral-style text encoder of width {}, not Qwen3", table[1]));
  c.vocab = table[0];
  c.hidden = table[1];
  c.head_dim = shape("model.layers.0.self_attn.q_norm.weight", 1)[0];
  c.heads = shape("model.layers.0.self_attn.q_proj.weight", 2)[0] / c.head_dim;
  c.kv_heads = shape("model.layers.0.self_attn.k_proj.weight", 2)[0] / c.head_dim;
  c.intermediate = shape("model.layers.0.mlp.gate_proj.weight", 2)[0];
  c.layers = 0;
  while (weights.has(fmt::format("model.layers.{}.input_layernorm.weight", c.layers))) ++c.layers;
  if (c.kv_heads < 1 || c.heads < 1 || c.heads % c.kv_heads != 0 || c.head_dim % 2 != 0)
    refuse(
        fmt::format("{} query heads, {} key heads of width {} do not form an attention; they were read from "
                    "model.layers.0.self_attn.q_proj.weight, model.layers.0.self_attn.k_proj.weight and "
                    "model.layers.0.self_attn.q_norm.weight",
                    c.heads, c.kv_heads, c.head_dim));
  return c;
}

Qwen3Layer::Qwen3Layer(const Qwen3Config& c)
    : heads(c.heads),
      kv_heads(c.kv_heads),
      head_dim(c.head_dim),
      eps(c.norm_eps),
      q(c.hidden, c.heads * c.head_dim),
      k(c.hidden, c.kv_heads * c.head_dim),
      v(c.hidden, c.kv_heads * c.head_dim),
      o(c.heads * c.head_dim, c.hidden),
      gate(c.hidden, c.intermediate),
      up(c.hidden, c.intermediate),
      down(c.intermediate, c.hidden) {}

Tensor Qwen3Layer::operator()(const Tensor& x, const Rope& rope, const Tensor& key_mask) const {
  const int64_t batch = x.dim(0), length = x.dim(1);
  const Tensor a = rms_norm(x, input_norm, {.eps = eps, .as = takes(x, {&q, &k, &v})});
  const Tensor query = rope.after_norm({{reshape(q(a), {batch, length, heads, head_dim}), q_norm}}, eps);
  const Tensor key = rope.after_norm({{reshape(k(a), {batch, length, kv_heads, head_dim}), k_norm}}, eps);
  const Tensor value = reshape(v(a), {batch, length, kv_heads, head_dim});
  const Tensor y = x + o(attention(query, key, value, {.causal = true, .key_mask = key_mask}));
  const Tensor b = rms_norm(y, attention_norm, {.eps = eps, .as = takes(y, {&gate, &up})});
  return y + down(swiglu(gate(b), up(b), down.takes(y)));
}

void Qwen3Layer::visit(const std::string& p, const ParameterVisitor& visitor) {
  const auto vector = [&](const std::string& name, Tensor& t, int64_t n) {
    visitor({p + name, t, {n}, ParameterKind::Vector, kWhole});
  };
  vector("input_layernorm.weight", input_norm, q.in);
  q.visit(p + "self_attn.q_proj", visitor);
  k.visit(p + "self_attn.k_proj", visitor);
  v.visit(p + "self_attn.v_proj", visitor);
  o.visit(p + "self_attn.o_proj", visitor);
  vector("self_attn.q_norm.weight", q_norm, head_dim);
  vector("self_attn.k_norm.weight", k_norm, head_dim);
  vector("post_attention_layernorm.weight", attention_norm, q.in);
  gate.visit(p + "mlp.gate_proj", visitor);
  up.visit(p + "mlp.up_proj", visitor);
  down.visit(p + "mlp.down_proj", visitor);
}

Qwen3Encoder::Qwen3Encoder(const Qwen3Config& c) : config(c), layers(static_cast<size_t>(c.layers_needed()), Qwen3Layer(c)) {
  if (c.layers_needed() > c.layers)
    fail(ErrorCode::Incompatible, "This text encoder has {} layers, but the model reads the output of layer {}.", c.layers,
         c.layers_needed());
}

Tensor Qwen3Encoder::operator()(const Tensor& ids, const Tensor& mask, DType dtype, const BeforeBlock& before_layer) const {
  check(ids.rank() == 2 && mask.shape() == ids.shape(), "text encoder: ids {} and mask {}", ids.shape(), mask.shape());
  const Rope rope = text_rope(ids.stream(), ids.dim(1), config.head_dim, config.rope_theta);
  Tensor x = embedding(ids, embed_tokens, dtype);
  std::vector<Tensor> chosen;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (before_layer) before_layer();
    const BlockTurn turn(schedule, i, ids.stream());
    x = layers[i](x, rope, mask);
    if (std::find(config.states.begin(), config.states.end(), static_cast<int>(i) + 1) != config.states.end())
      chosen.push_back(x);
  }
  return concat(chosen);
}

void Qwen3Encoder::visit(const ParameterVisitor& visitor) {
  visitor({"model.embed_tokens.weight", embed_tokens, {config.vocab, config.hidden}, ParameterKind::Table, kWhole});
  for (size_t i = 0; i < layers.size(); ++i) layers[i].visit(fmt::format("model.layers.{}.", i), visitor);
}

}  // namespace flux2
