#include "model/vision_tower.h"

#include <fmt/format.h>

#include <cmath>

#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/attention.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/view.h"

namespace flux2 {

Rope grid_rope(Stream& stream, int64_t rows, int64_t columns, int64_t head_dim, double theta) {
  const int64_t pairs = head_dim / 2;
  std::vector<float> by_row, by_column, cosine, sine;
  for (int64_t i = 0; i < pairs; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    (i % 2 == 0 ? by_row : by_column).push_back(1.0f / std::pow(static_cast<float>(theta), exponent));
  }
  cosine.reserve(static_cast<size_t>(rows * columns * pairs));
  sine.reserve(cosine.capacity());
  const auto add = [&](int64_t position, const std::vector<float>& frequencies) {
    for (const float frequency : frequencies) {
      const float angle = static_cast<float>(position) * frequency;
      cosine.push_back(std::cos(angle));
      sine.push_back(std::sin(angle));
    }
  };
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      add(r, by_row);
      add(c, by_column);
    }
  const Shape shape{rows * columns, pairs};
  return {Tensor::from<float>(stream, DType::F32, shape, cosine), Tensor::from<float>(stream, DType::F32, shape, sine),
          RopePairs::Halves};
}

VisionLayer::VisionLayer(const VisionConfig& c)
    : heads(c.heads),
      head_dim(c.head_dim()),
      q(c.hidden, c.hidden),
      k(c.hidden, c.hidden),
      v(c.hidden, c.hidden),
      o(c.hidden, c.hidden),
      gate(c.hidden, c.intermediate),
      up(c.hidden, c.intermediate),
      down(c.intermediate, c.hidden) {}

Tensor VisionLayer::operator()(const Tensor& x, const Rope& rope) const {
  constexpr float eps = VisionConfig::kEps;
  const Tensor a = rms_norm(x, attention_norm, {.eps = eps, .as = takes(x, {&q, &k, &v})});
  const auto as_heads = [&](const Linear& projection) { return reshape(projection(a), {x.dim(0), x.dim(1), heads, head_dim}); };
  const Tensor seen = x + o(attention(rope(as_heads(q)), rope(as_heads(k)), as_heads(v)));
  const Tensor b = rms_norm(seen, ffn_norm, {.eps = eps, .as = takes(seen, {&gate, &up})});
  return seen + down(swiglu(gate(b), up(b), down.takes(seen)));
}

void VisionLayer::visit(const std::string& p, const ParameterVisitor& visitor) {
  visitor({p + "attention_norm.weight", attention_norm, {q.in}, ParameterKind::Vector, kWhole});
  q.visit(p + "attention.q_proj", visitor);
  k.visit(p + "attention.k_proj", visitor);
  v.visit(p + "attention.v_proj", visitor);
  o.visit(p + "attention.o_proj", visitor);
  visitor({p + "ffn_norm.weight", ffn_norm, {q.in}, ParameterKind::Vector, kWhole});
  gate.visit(p + "feed_forward.gate_proj", visitor);
  up.visit(p + "feed_forward.up_proj", visitor);
  down.visit(p + "feed_forward.down_proj", visitor);
}

VisionTower::VisionTower(const VisionConfig& c)
    : config(c),
      layers(static_cast<size_t>(c.layers), VisionLayer(c)),
      merger(c.hidden * c.merge * c.merge, c.hidden),
      linear_1(c.hidden, c.text_hidden),
      linear_2(c.text_hidden, c.text_hidden) {}

Tensor VisionTower::operator()(const Tensor& patches, int64_t rows, int64_t columns, const BeforeBlock& before_layer) const {
  const int64_t width = config.patch * config.patch * 3;
  check(rows > 0 && columns > 0 && patches.shape() == Shape({rows * columns, width}),
        "vision tower: patches {} for a grid of {}×{}", patches.shape(), rows, columns);
  Tensor x = reshape(linear(patches, patch_conv.reshaped({config.hidden, width})), {1, rows * columns, config.hidden});
  x = rms_norm(x, ln_pre, VisionConfig::kEps);
  const Rope rope = grid_rope(patches.stream(), rows, columns, config.head_dim(), config.rope_theta);
  for (const VisionLayer& layer : layers) {
    if (before_layer) before_layer();
    x = layer(x, rope);
  }
  return x;
}

Tensor VisionTower::project(const Tensor& states, int64_t rows, int64_t columns) const {
  const int64_t m = config.merge, c = config.hidden;
  check(rows % m == 0 && columns % m == 0 && states.shape() == Shape({1, rows * columns, c}),
        "projector: states {} for a grid of {}×{}", states.shape(), rows, columns);
  const Tensor normed = rms_norm(states, projector_norm, config.projector_eps);
  // A group's numbers lie side by side by channel, then by row and column inside the group, as an unfold leaves them.
  const Tensor grid = reshape(normed, {rows / m, m, columns / m, m, c});
  const Tensor groups = reshape(contiguous(permute(grid, {0, 2, 4, 1, 3})), {1, rows / m * (columns / m), m * m * c});
  return linear_2(gelu(linear_1(merger(groups))));
}

void VisionTower::visit(const ParameterVisitor& visitor) {
  const VisionConfig& c = config;
  visitor({"vision_tower.patch_conv.weight", patch_conv, {c.hidden, 3, c.patch, c.patch}, ParameterKind::Conv, kWhole});
  visitor({"vision_tower.ln_pre.weight", ln_pre, {c.hidden}, ParameterKind::Vector, kWhole});
  for (size_t i = 0; i < layers.size(); ++i) layers[i].visit(fmt::format("vision_tower.transformer.layers.{}.", i), visitor);
  visitor({"multi_modal_projector.norm.weight", projector_norm, {c.hidden}, ParameterKind::Vector, kWhole});
  merger.visit("multi_modal_projector.patch_merger.merging_layer", visitor);
  linear_1.visit("multi_modal_projector.linear_1", visitor);
  linear_2.visit("multi_modal_projector.linear_2", visitor);
}

}  // namespace flux2
