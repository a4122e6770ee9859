#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/block_schedule.h"
#include "model/decoder.h"
#include "model/taps.h"
#include "model/token_layer.h"

namespace flux2 {

// The keys and values of the tokens so far, for every layer, in memory that is allocated once.
class KeyCache {
 public:
  // Room for `capacity` tokens of one sequence, in the dtype of the activations.
  KeyCache(Stream& stream, const DecoderConfig& config, DType dtype, int64_t capacity);

  int64_t length() const { return length_; }
  int64_t capacity() const { return capacity_; }

  // Appends the keys of this pass to the earlier ones and returns all of them.
  TokenKeys extended(size_t layer, const TokenKeys& now) const;
  void advance(int64_t tokens);  // call it after extended() was called for all layers
  // For one token: where extended() would put it.
  TokenPlace next_place(size_t layer) const;

  // Like extended(), for one token, at addresses that do not depend on length(), so that it can be captured in a graph. The
  // token's keys are written to a separate row before all others. The result has `rows` rows; a mask must hide the unused ones.
  TokenKeys staged(size_t layer, const TokenKeys& now, int64_t rows) const;
  TokenPlace staged_place(size_t layer, int64_t rows) const;
  void advance_staged();      // moves the keys of all layers from the separate row to the end
  void clear_unused() const;  // zeros: a hidden row is multiplied by 0, so it must not contain NaN

 private:
  TokenKeys rows_of(size_t layer, int64_t first, int64_t count) const;  // [1, count, kv_heads, head_dim] each

  Tensor all_;  // [2 · layers, 1 + capacity, kv_heads, head_dim]: keys and values of each layer
  int64_t capacity_, length_ = 0;
};

struct LanguageModelConfig {
  DecoderConfig decoder;
  bool ties_head = false;  // the embeddings also serve as the output matrix

  bool operator==(const LanguageModelConfig&) const = default;
};

// Reads the configuration from the weights. Throws Incompatible if they cannot write text: files that were made only for encoding
// prompts lack the final norm, the output matrix or some layers.
LanguageModelConfig detect_language_model(const NamedWeights& weights, const DecoderConfig& decoder);

// A whole language model, which continues a text: embeddings, all layers, a norm and the output matrix.
struct LanguageModel {
  explicit LanguageModel(const LanguageModelConfig& config);

  // The scores F32 [vocab] of the next token. `ids` (I32 [1, T]) are the tokens after those in the cache.
  Tensor scores(const Tensor& ids, KeyCache& cache, DType dtype, const BeforeBlock& before_layer = {}) const;
  // The same for rows x [1, T, hidden]: embeddings of tokens, or the output of a vision tower.
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
  Linear head;  // undefined if ties_head, unless a faster copy was made
  std::shared_ptr<BlockSchedule> schedule;

 private:
  Tensor scores_of_last(const Tensor& x) const;  // of the last row of x [1, T, hidden], the output of the last layer
};

}  // namespace flux2
