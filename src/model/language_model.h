#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/block_schedule.h"
#include "model/decoder.h"
#include "model/taps.h"

namespace flux2 {

// The keys and values of the tokens so far, for every layer, in memory that is allocated once.
class KeyCache {
 public:
  // Room for `capacity` tokens of one sequence, in the dtype of the activations.
  KeyCache(Stream& stream, const DecoderConfig& config, DType dtype, int64_t capacity);

  int64_t length() const { return length_; }
  int64_t capacity() const { return capacity_; }

  // Puts the keys of this pass behind the earlier ones and returns all of them.
  TokenKeys extended(size_t layer, const TokenKeys& now) const;
  void advance(int64_t tokens);  // after all layers have seen them

  // The same for one token, at addresses that do not depend on the length, so that it can be captured. The token's keys go to a
  // row of their own before all others. The result has `rows` rows in all; a mask must hide those that are not in use.
  TokenKeys staged(size_t layer, const TokenKeys& now, int64_t rows) const;
  void advance_staged();      // moves the keys of all layers from there to their place
  void clear_unused() const;  // a hidden row counts with weight 0, so it may not hold NaN

 private:
  TokenKeys rows_of(size_t layer, int64_t first, int64_t count) const;  // [1, count, kv_heads, head_dim] each

  Tensor all_;  // [2 · layers, 1 + capacity, kv_heads, head_dim]: keys and values of each layer
  int64_t capacity_, length_ = 0;
};

struct LanguageModelConfig {
  DecoderConfig decoder;
  bool ties_head = false;  // the embeddings are the output matrix too

  bool operator==(const LanguageModelConfig&) const = default;
};

// What the weights are. Throws Incompatible, in one sentence, if they cannot write text: a file that was made for reading prompts
// alone has no final norm, no output matrix or not all layers.
LanguageModelConfig detect_language_model(const NamedWeights& weights, const DecoderConfig& decoder);

// A whole language model, which continues a text: embeddings, all layers, a norm and the output matrix.
struct LanguageModel {
  explicit LanguageModel(const LanguageModelConfig& config);

  // The scores F32 [vocab] of the token that follows `ids` (I32 [1, T]), which follow those in the cache.
  Tensor scores(const Tensor& ids, KeyCache& cache, DType dtype, const BeforeBlock& before_layer = {}) const;
  // The same for rows x [1, T, hidden], which are embeddings of tokens or what a vision tower made of an image.
  Tensor scores_of_rows(Tensor x, KeyCache& cache, const BeforeBlock& before_layer = {}) const;

  // The same for one token, at addresses that do not depend on the length of the cache: `token`, I32 [2], is its id and its
  // position, `positions` has a row for each, and `key_mask`, I32 [1, rows], hides rows of the cache. KeyCache::advance_staged()
  // comes after it.
  Tensor staged_scores(const Tensor& token, const Rope& positions, const Tensor& key_mask, const KeyCache& cache,
                       DType dtype) const;

  void visit(const ParameterVisitor& visitor);

  LanguageModelConfig config;
  Tensor embed_tokens;  // [vocab, hidden]
  std::vector<DecoderLayer> layers;
  Tensor norm;  // [hidden]
  Linear head;  // undefined if it is tied, unless somebody made a faster copy
  std::shared_ptr<BlockSchedule> schedule;

 private:
  Tensor scores_of_last(const Tensor& x) const;  // of the last row of [1, T, hidden], which went through all layers
};

}  // namespace flux2
