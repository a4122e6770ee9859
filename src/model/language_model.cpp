#include "model/language_model.h"

#include <fmt/format.h>

#include "base/error.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/token.h"
#include "ops/view.h"

namespace flux2 {

KeyCache::KeyCache(Stream& stream, const DecoderConfig& config, DType dtype, int64_t capacity) : capacity_(capacity) {
  check(capacity > 0, "a key cache needs room for at least one token");
  all_ = Tensor::empty(stream, dtype, {2 * config.layers, 1 + capacity, config.kv_heads, config.head_dim});
}

TokenKeys KeyCache::rows_of(size_t layer, int64_t first, int64_t count) const {
  const auto i = 2 * static_cast<int64_t>(layer);
  return {all_.narrowed(0, i, 1).narrowed(1, first, count), all_.narrowed(0, i + 1, 1).narrowed(1, first, count)};
}

TokenKeys KeyCache::extended(size_t layer, const TokenKeys& now) const {
  const int64_t count = now.k.dim(1);
  require(length_ + count <= capacity_, "{} tokens in a key cache for {}", length_ + count, capacity_);
  const TokenKeys place = rows_of(layer, 1 + length_, count);
  place.k.copy_from(now.k);
  place.v.copy_from(now.v);
  return rows_of(layer, 1, length_ + count);
}

TokenPlace KeyCache::next_place(size_t layer) const {
  require(length_ < capacity_, "{} tokens in a key cache for {}", length_ + 1, capacity_);
  return {rows_of(layer, 1, length_ + 1), length_};
}

void KeyCache::advance(int64_t tokens) { length_ += tokens; }

TokenKeys KeyCache::staged(size_t layer, const TokenKeys& now, int64_t rows) const {
  const TokenKeys place = rows_of(layer, 0, 1);
  place.k.copy_from(now.k);
  place.v.copy_from(now.v);
  return rows_of(layer, 0, rows);
}

TokenPlace KeyCache::staged_place(size_t layer, int64_t rows) const { return {rows_of(layer, 0, rows), 0}; }

void KeyCache::advance_staged() {
  require(length_ < capacity_, "a key cache for {} tokens is full", capacity_);
  all_.narrowed(1, 1 + length_, 1).copy_from(all_.narrowed(1, 0, 1));
  ++length_;
}

void KeyCache::clear_unused() const { all_.narrowed(1, 1 + length_, capacity_ - length_).fill(0); }

LanguageModelConfig detect_language_model(const NamedWeights& weights, const DecoderConfig& decoder) {
  // Published models, of which shortened files exist: they serve as text encoders. Those up to Qwen3-4B have no matrix of their
  // own for the output.
  constexpr int64_t kQwenLayers = 36, kLargestTied = 2560, kQwenWidth = 4096;
  const bool qwen = decoder.family == DecoderFamily::Qwen3, has_head = weights.has("lm_head.weight");
  const int64_t published = !qwen ? (decoder.hidden == mistral_small_config().hidden ? mistral_small_config().layers : 0)
                            : decoder.hidden == kLargestTied || decoder.hidden == kQwenWidth ? kQwenLayers
                                                                                             : 0;
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::Incompatible,
                fmt::format("{} can read prompts but not write them: it has {}", weights.source().description(), what),
                "use a text encoder file with the whole language model");
  };
  if (decoder.layers < published) refuse(fmt::format("{} of {} layers", decoder.layers, published));
  if (!weights.has("model.norm.weight")) refuse("no final norm");
  if (!has_head && (!qwen || decoder.hidden > kLargestTied)) refuse("no output matrix (lm_head)");
  return {decoder, !has_head};
}

LanguageModel::LanguageModel(const LanguageModelConfig& c)
    : config(c),
      layers(static_cast<size_t>(c.decoder.layers), DecoderLayer(c.decoder)),
      head(c.decoder.hidden, c.decoder.vocab) {}

Tensor LanguageModel::scores(const Tensor& ids, KeyCache& cache, DType dtype, const BeforeBlock& before_layer) const {
  check(ids.rank() == 2 && ids.dim(0) == 1 && ids.dim(1) > 0, "language model: ids {}", ids.shape());
  return scores_of_rows(embedding(ids, embed_tokens, dtype), cache, before_layer);
}

Tensor LanguageModel::scores_of_rows(Tensor x, KeyCache& cache, const BeforeBlock& before_layer) const {
  const DecoderConfig& c = config.decoder;
  check(x.rank() == 3 && x.dim(0) == 1 && x.dim(1) > 0 && x.dim(2) == c.hidden, "language model: rows {}", x.shape());
  const int64_t count = x.dim(1);
  DecoderPass pass{.rope = text_rope(x.stream(), count, c.head_dim, c.rope_theta, cache.length()), .key_mask = {}, .memory = {}};
  const bool at_rest = count == 1 && !schedule;  // streamed weights may still be on their way
  for (size_t i = 0; i < layers.size(); ++i) {
    if (before_layer) before_layer();
    const BlockTurn turn(schedule, i, x.stream());
    if (at_rest && has_token_kernels(layers[i], x)) {
      x = token_layer(layers[i], x, {pass.rope, {}, cache.next_place(i)});
      continue;
    }
    pass.memory = [&cache, i](const TokenKeys& now) { return cache.extended(i, now); };
    x = layers[i](x, pass);
  }
  cache.advance(count);
  return scores_of_last(x);
}

Tensor LanguageModel::staged_scores(const Tensor& token, const Rope& positions, const Tensor& key_mask, const KeyCache& cache,
                                    DType dtype) const {
  const Tensor position = token.narrowed(0, 1, 1);
  DecoderPass pass{.rope = {embedding(position, positions.cosine, DType::F32), embedding(position, positions.sine, DType::F32),
                            positions.pairs},
                   .key_mask = key_mask,
                   .memory = {}};
  Tensor x = embedding(token.narrowed(0, 0, 1).reshaped({1, 1}), embed_tokens, dtype);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (has_token_kernels(layers[i], x)) {
      x = token_layer(layers[i], x, {pass.rope, key_mask, cache.staged_place(i, key_mask.dim(1))});
      continue;
    }
    pass.memory = [&, i](const TokenKeys& now) { return cache.staged(i, now, key_mask.dim(1)); };
    x = layers[i](x, pass);
  }
  return scores_of_last(x);
}

Tensor LanguageModel::scores_of_last(const Tensor& x) const {
  const DecoderConfig& c = config.decoder;
  const Tensor& matrix = head.weight.defined() ? head.weight : embed_tokens;
  const Tensor last = x.narrowed(1, x.dim(1) - 1, 1);
  if (has_token_kernels(last)) {
    const Tensor scores = Tensor::like(last, DType::F32, {c.vocab});
    row_products(last, RowNorm{norm, c.norm_eps}, {&matrix, 1}, {&scores, 1});
    return scores;
  }
  return linear(rms_norm(last, norm, c.norm_eps), matrix).reshaped({c.vocab}).cast(DType::F32);
}

void LanguageModel::visit(const ParameterVisitor& visitor) {
  const DecoderConfig& c = config.decoder;
  visitor({"model.embed_tokens.weight", embed_tokens, {c.vocab, c.hidden}, ParameterKind::Table, kWhole});
  for (size_t i = 0; i < layers.size(); ++i) layers[i].visit(fmt::format("model.layers.{}.", i), visitor);
  visitor({"model.norm.weight", norm, {c.hidden}, ParameterKind::Vector, kWhole});
  if (!config.ties_head) head.visit("lm_head", visitor);
}

}  // namespace flux2
