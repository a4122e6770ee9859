#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "model/block_schedule.h"
#include "model/decoder.h"
#include "model/taps.h"

namespace flux2 {

// Tokens without padding, ids I32 [B, T].
struct TokenRun {
  Tensor ids;
  bool sees = true;                                    // false: attention adds 0, as for padding before a prompt
  int64_t past = 0;                                    // tokens before these, whose keys `memory` has
  std::function<KeyMemory(size_t layer)> memory = {};  // empty: there is none
};

// The first layers of a language model, whose states are what FLUX.2 knows of a prompt.
struct TextEncoder {
  explicit TextEncoder(const DecoderConfig& config);

  // ids, mask I32 [B, T] (mask 0 marks padding, on either side) → [B, T, 3·hidden], the chosen states side by side. No token
  // attends to padding. The rows of padding are part of the result: behind the real tokens they attend to these; before them
  // they see nothing, and attention adds 0.
  Tensor operator()(const Tensor& ids, const Tensor& mask, DType dtype, const BeforeBlock& before_layer = {}) const;

  // The same for several runs of tokens without padding. They pass each layer one after the other, so that weights which are not
  // in memory are read once.
  std::vector<Tensor> states_of(const std::vector<TokenRun>& runs, DType dtype, const BeforeBlock& before_layer = {}) const;

  void visit(const ParameterVisitor& visitor);

  DecoderConfig config;
  Tensor embed_tokens;  // [vocab, hidden]
  std::vector<DecoderLayer> layers;
  std::shared_ptr<BlockSchedule> schedule;  // when not all layers are in memory
};

}  // namespace flux2
