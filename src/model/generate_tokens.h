#pragma once

#include <functional>
#include <span>
#include <vector>

#include "model/language_model.h"
#include "model/token_sampler.h"
#include "model/token_steps.h"

namespace flux2 {

// What a vision tower made of the images in a prompt. The rows take the places of the prompt's image tokens, in their order.
struct ImageRows {
  Tensor rows;        // [1, N, hidden]; undefined: there is no image
  int32_t token = 0;  // its id; the prompt has it N times
};

struct GenerateOptions {
  TokenSampling sampling;
  int64_t max_new = 512;
  std::vector<int32_t> stop = {};              // ids that end the text; they are not part of it
  int64_t prefill_rows = 512;                  // tokens of the prompt in one pass
  std::function<void(int32_t)> on_token = {};  // called with each token of the text
  std::function<bool()> ends = {};             // asked before every token; true: the text ends here
  BeforeBlock before_layer = {};               // may throw, for example to cancel
  ImageRows images = {};
  CaptureSteps capture = CaptureSteps::WherePreferred;
};

struct GeneratedTokens {
  std::vector<int32_t> ids;
  enum Reason { Stop, Length, Ended } reason = Stop;
};

// The scores of the token that follows a prompt: one pass of generate_tokens(). `cache` is empty and has room for the prompt.
Tensor prompt_scores(const LanguageModel& model, Stream& stream, DType activations, std::span<const int32_t> prompt,
                     KeyCache& cache, const GenerateOptions& options);

// Continues a text token by token. The first pass reads the prompt; every later one reads one token and the keys and values of
// those before.
GeneratedTokens generate_tokens(const LanguageModel& model, Stream& stream, DType activations, std::span<const int32_t> prompt,
                                const GenerateOptions& options);

}  // namespace flux2
