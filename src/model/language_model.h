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

 private:
  std::vector<TokenKeys> layers_;  // [1, capacity, kv_heads, head_dim] each
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

  void visit(const ParameterVisitor& visitor);

  LanguageModelConfig config;
  Tensor embed_tokens;  // [vocab, hidden]
  std::vector<DecoderLayer> layers;
  Tensor norm;  // [hidden]
  Linear head;  // undefined if it is tied, unless somebody made a faster copy
  std::shared_ptr<BlockSchedule> schedule;
};

}  // namespace flux2
