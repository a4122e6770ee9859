#include "model/vit_layer.h"

#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/attention.h"
#include "ops/norm.h"
#include "ops/view.h"

namespace flux2 {

const VitNames kVitNames = {.before = "layernorm_before",
                            .query = "attention.attention.query",
                            .key = "attention.attention.key",
                            .value = "attention.attention.value",
                            .out = "attention.output.dense",
                            .after = "layernorm_after",
                            .up = "intermediate.dense",
                            .down = "output.dense"};

const VitNames kClipNames = {.before = "layer_norm1",
                             .query = "self_attn.q_proj",
                             .key = "self_attn.k_proj",
                             .value = "self_attn.v_proj",
                             .out = "self_attn.out_proj",
                             .after = "layer_norm2",
                             .up = "mlp.fc1",
                             .down = "mlp.fc2"};

Tensor LayerNorm::operator()(const Tensor& x) const { return layer_norm(x, eps) * weight + bias; }

void LayerNorm::visit(const std::string& name, const ParameterVisitor& visitor) {
  visitor({name + ".weight", weight, {width}, ParameterKind::Vector, kWhole});
  visitor({name + ".bias", bias, {width}, ParameterKind::Vector, kWhole});
}

// x · sigmoid(a x) = silu(a x) / a
Tensor quick_gelu(const Tensor& x) { return (1 / 1.702) * silu(1.702 * x); }

VitLayer::VitLayer(const VitLayerConfig& c)
    : config(c),
      before(c.hidden, c.eps),
      after(c.hidden, c.eps),
      query(c.hidden, c.hidden, true),
      key(c.hidden, c.hidden, true),
      value(c.hidden, c.hidden, true),
      out(c.hidden, c.hidden, true),
      up(c.hidden, c.intermediate, true),
      down(c.intermediate, c.hidden, true) {}

Tensor VitLayer::operator()(const Tensor& x) const {
  const Tensor a = before(x);
  const auto as_heads = [&](const Linear& projection) {
    return reshape(projection(a), {x.dim(0), x.dim(1), config.heads, config.hidden / config.heads});
  };
  const Tensor seen = x + out(attention(as_heads(query), as_heads(key), as_heads(value)));
  const Tensor inner = up(after(seen));
  return seen + down(config.quick_gelu ? quick_gelu(inner) : gelu(inner));
}

void VitLayer::visit(const std::string& p, const ParameterVisitor& visitor) {
  const VitNames& n = *config.names;
  before.visit(p + n.before, visitor);
  query.visit(p + n.query, visitor);
  key.visit(p + n.key, visitor);
  value.visit(p + n.value, visitor);
  out.visit(p + n.out, visitor);
  after.visit(p + n.after, visitor);
  up.visit(p + n.up, visitor);
  down.visit(p + n.down, visitor);
}

}  // namespace flux2
