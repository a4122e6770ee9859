#include "model/text_encoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/embedding.h"
#include "ops/view.h"

namespace flux2 {

TextEncoder::TextEncoder(const DecoderConfig& c) : config(c), layers(static_cast<size_t>(c.layers_needed()), DecoderLayer(c)) {
  if (c.layers_needed() > c.layers)
    fail(ErrorCode::Incompatible, "This text encoder has {} layers, but the model reads the output of layer {}.", c.layers,
         c.layers_needed());
}

// The chosen states of x after layer(i, x) for each layer i in turn.
template <class Layer>
Tensor TextEncoder::states(const Tensor& ids, DType dtype, const BeforeBlock& before_layer, const Layer& layer) const {
  Tensor x = embedding(ids, embed_tokens, dtype);
  std::vector<Tensor> chosen;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (before_layer) before_layer();
    const BlockTurn turn(schedule, i, ids.stream());
    x = layer(i, x);
    if (std::find(config.states.begin(), config.states.end(), static_cast<int>(i) + 1) != config.states.end())
      chosen.push_back(x);
  }
  return concat(chosen);
}

Tensor TextEncoder::operator()(const Tensor& ids, const Tensor& mask, DType dtype, const BeforeBlock& before_layer) const {
  check(ids.rank() == 2 && mask.shape() == ids.shape(), "text encoder: ids {} and mask {}", ids.shape(), mask.shape());
  const DecoderPass pass{.rope = text_rope(ids.stream(), ids.dim(1), config.head_dim, config.rope_theta), .key_mask = mask};
  return states(ids, dtype, before_layer, [&](size_t i, const Tensor& x) { return layers[i](x, pass); });
}

Tensor TextEncoder::following(const Tensor& ids, int64_t past, const std::function<KeyMemory(size_t layer)>& memory, DType dtype,
                              const BeforeBlock& before_layer) const {
  check(ids.rank() == 2 && past >= 0, "text encoder: ids {} after {} tokens", ids.shape(), past);
  DecoderPass pass{.rope = text_rope(ids.stream(), ids.dim(1), config.head_dim, config.rope_theta, past)};
  return states(ids, dtype, before_layer, [&](size_t i, const Tensor& x) {
    if (memory) pass.memory = memory(i);
    return layers[i](x, pass);
  });
}

Tensor TextEncoder::unseeing(const Tensor& ids, DType dtype) const {
  return states(ids, dtype, {}, [&](size_t i, const Tensor& x) { return layers[i].mlp(x); });
}

void TextEncoder::visit(const ParameterVisitor& visitor) {
  visitor({"model.embed_tokens.weight", embed_tokens, {config.vocab, config.hidden}, ParameterKind::Table, kWhole});
  for (size_t i = 0; i < layers.size(); ++i) layers[i].visit(fmt::format("model.layers.{}.", i), visitor);
}

}  // namespace flux2
