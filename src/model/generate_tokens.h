#pragma once

#include <functional>
#include <span>
#include <vector>

#include "model/language_model.h"
#include "model/token_sampler.h"

namespace flux2 {

struct GenerateOptions {
  TokenSampling sampling;
  int64_t max_new = 512;
  std::vector<int32_t> stop = {};              // ids that end the text; they are not part of it
  int64_t prefill_rows = 512;                  // tokens of the prompt in one pass
  std::function<void(int32_t)> on_token = {};  // called with each token of the text
  std::function<bool()> ends = {};             // asked before every token; true: the text ends here
  BeforeBlock before_layer = {};               // may throw, for example to cancel
};

struct GeneratedTokens {
  std::vector<int32_t> ids;
  enum Reason { Stop, Length, Ended } reason = Stop;
};

// Continues a text token by token. The first pass reads the prompt; every later one reads one token and the keys and values of
// those before.
GeneratedTokens generate_tokens(const LanguageModel& model, Stream& stream, DType activations, std::span<const int32_t> prompt,
                                const GenerateOptions& options);

}  // namespace flux2
