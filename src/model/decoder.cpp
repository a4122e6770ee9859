#include "model/decoder.h"

#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/attention.h"
#include "ops/norm.h"
#include "ops/view.h"

namespace flux2 {

DecoderLayer::DecoderLayer(const DecoderConfig& c)
    : heads(c.heads),
      kv_heads(c.kv_heads),
      head_dim(c.head_dim),
      normalises_heads(c.normalises_heads()),
      eps(c.norm_eps),
      q(c.hidden, c.heads * c.head_dim),
      k(c.hidden, c.kv_heads * c.head_dim),
      v(c.hidden, c.kv_heads * c.head_dim),
      o(c.heads * c.head_dim, c.hidden),
      gate(c.hidden, c.intermediate),
      up(c.hidden, c.intermediate),
      down(c.intermediate, c.hidden) {}

Tensor DecoderLayer::operator()(const Tensor& x, const DecoderPass& pass) const {
  const int64_t batch = x.dim(0), length = x.dim(1);
  const Tensor a = rms_norm(x, input_norm, {.eps = eps, .as = takes(x, {&q, &k, &v})});
  const auto turned = [&](const Linear& projection, int64_t count, const Tensor& norm) {
    const Tensor rows = reshape(projection(a), {batch, length, count, head_dim});
    return normalises_heads ? pass.rope.after_norm({{rows, norm}}, eps) : pass.rope(rows);
  };
  const Tensor query = turned(q, heads, q_norm);
  TokenKeys seen{turned(k, kv_heads, k_norm), reshape(v(a), {batch, length, kv_heads, head_dim})};
  if (pass.memory) seen = pass.memory(seen);
  return mlp(x + o(attention(query, seen.k, seen.v, {.causal = true, .key_mask = pass.key_mask})));
}

Tensor DecoderLayer::mlp(const Tensor& x) const {
  const Tensor b = rms_norm(x, attention_norm, {.eps = eps, .as = takes(x, {&gate, &up})});
  return x + down(swiglu(gate(b), up(b), down.takes(x)));
}

void DecoderLayer::visit(const std::string& p, const ParameterVisitor& visitor) {
  const auto vector = [&](const std::string& name, Tensor& t, int64_t n) {
    visitor({p + name, t, {n}, ParameterKind::Vector, kWhole});
  };
  vector("input_layernorm.weight", input_norm, q.in);
  q.visit(p + "self_attn.q_proj", visitor);
  k.visit(p + "self_attn.k_proj", visitor);
  v.visit(p + "self_attn.v_proj", visitor);
  o.visit(p + "self_attn.o_proj", visitor);
  if (normalises_heads) {
    vector("self_attn.q_norm.weight", q_norm, head_dim);
    vector("self_attn.k_norm.weight", k_norm, head_dim);
  }
  vector("post_attention_layernorm.weight", attention_norm, q.in);
  gate.visit(p + "mlp.gate_proj", visitor);
  up.visit(p + "mlp.up_proj", visitor);
  down.visit(p + "mlp.down_proj", visitor);
}

}  // namespace flux2
