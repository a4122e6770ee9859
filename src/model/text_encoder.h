#pragma once

#include <memory>
#include <vector>

#include "model/block_schedule.h"
#include "model/decoder.h"
#include "model/taps.h"

namespace flux2 {

// The first layers of a language model, whose states are what FLUX.2 knows of a prompt.
struct TextEncoder {
  explicit TextEncoder(const DecoderConfig& config);

  // ids, mask I32 [B, T] (mask 0 marks padding, on either side) → [B, T, 3·hidden], the chosen states side by side. No token
  // attends to padding. The rows of padding are part of the result: behind the real tokens they attend to these; before them
  // they see nothing, and attention adds 0.
  Tensor operator()(const Tensor& ids, const Tensor& mask, DType dtype, const BeforeBlock& before_layer = {}) const;

  // The same for tokens without padding that follow `past` tokens; memory(layer) keeps the keys and values of a layer. Without
  // it there are no earlier tokens.
  Tensor following(const Tensor& ids, int64_t past, const std::function<KeyMemory(size_t layer)>& memory, DType dtype,
                   const BeforeBlock& before_layer = {}) const;

  // The states of tokens that see nothing, not even themselves: what padding before a prompt becomes.
  Tensor unseeing(const Tensor& ids, DType dtype) const;

  void visit(const ParameterVisitor& visitor);

  DecoderConfig config;
  Tensor embed_tokens;  // [vocab, hidden]
  std::vector<DecoderLayer> layers;
  std::shared_ptr<BlockSchedule> schedule;  // when not all layers are in memory

 private:
  template <class Layer>
  Tensor states(const Tensor& ids, DType dtype, const BeforeBlock& before_layer, const Layer& layer) const;
};

}  // namespace flux2
