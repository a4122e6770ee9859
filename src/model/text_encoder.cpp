#include "model/text_encoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/embedding.h"
#include "ops/view.h"

namespace flux2 {

namespace {

bool is_state(const DecoderConfig& config, size_t layer) {
  return std::find(config.states.begin(), config.states.end(), static_cast<int>(layer) + 1) != config.states.end();
}

}  // namespace

TextEncoder::TextEncoder(const DecoderConfig& c) : config(c), layers(static_cast<size_t>(c.layers_needed()), DecoderLayer(c)) {
  if (c.layers_needed() > c.layers)
    fail(ErrorCode::Incompatible, "This text encoder has {} layers, but the model reads the output of layer {}.", c.layers,
         c.layers_needed());
}

Tensor TextEncoder::operator()(const Tensor& ids, const Tensor& mask, DType dtype, const BeforeBlock& before_layer) const {
  check(ids.rank() == 2 && mask.shape() == ids.shape(), "text encoder: ids {} and mask {}", ids.shape(), mask.shape());
  const DecoderPass pass{.rope = text_rope(ids.stream(), ids.dim(1), config.head_dim, config.rope_theta), .key_mask = mask};
  Tensor x = embedding(ids, embed_tokens, dtype);
  std::vector<Tensor> chosen;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (before_layer) before_layer();
    const BlockTurn turn(schedule, i, ids.stream());
    x = layers[i](x, pass);
    if (is_state(config, i)) chosen.push_back(x);
  }
  return concat(chosen);
}

std::vector<Tensor> TextEncoder::states_of(const std::vector<TokenRun>& runs, DType dtype,
                                           const BeforeBlock& before_layer) const {
  struct Running {
    Tensor x;
    DecoderPass pass;
    std::vector<Tensor> chosen;
  };
  std::vector<Running> running;
  for (const TokenRun& run : runs) {
    check(run.ids.rank() == 2 && run.past >= 0, "text encoder: ids {} after {} tokens", run.ids.shape(), run.past);
    running.push_back({.x = embedding(run.ids, embed_tokens, dtype)});
    if (run.sees)
      running.back().pass.rope = text_rope(run.ids.stream(), run.ids.dim(1), config.head_dim, config.rope_theta, run.past);
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    if (before_layer) before_layer();
    const BlockTurn turn(schedule, i, runs.front().ids.stream());
    for (size_t r = 0; r < runs.size(); ++r) {
      Running& now = running[r];
      if (runs[r].memory) now.pass.memory = runs[r].memory(i);
      now.x = runs[r].sees ? layers[i](now.x, now.pass) : layers[i].mlp(now.x);
      if (is_state(config, i)) now.chosen.push_back(now.x);
    }
  }
  std::vector<Tensor> states;
  for (const Running& r : running) states.push_back(concat(r.chosen));
  return states;
}

void TextEncoder::visit(const ParameterVisitor& visitor) {
  visitor({"model.embed_tokens.weight", embed_tokens, {config.vocab, config.hidden}, ParameterKind::Table, kWhole});
  for (size_t i = 0; i < layers.size(); ++i) layers[i].visit(fmt::format("model.layers.{}.", i), visitor);
}

}  // namespace flux2
