#pragma once

#include <string>
#include <vector>

#include "pipeline/progress.h"
#include "pipeline/session.h"

namespace flux2 {

// The first tokens of every prompt (Mistral's system turn) with their keys and values in every layer, so that a later prompt
// needs only its own tokens; and the states of padding.
struct PromptPrefix {
  const void* encoder = nullptr;  // Resident::identity()
  std::vector<int32_t> ids;
  std::vector<TokenKeys> keys;  // by layer, [1, P, G, D]
  Tensor states;                // [1, P, Cctx]
  Tensor pad;                   // [1, 1, Cctx]
};

// The encoder's states for a prompt, [1, T, Cctx], from the session's cache when it has been encoded before.
// A prompt too long for the model's slots is cut and the dropped part named in a warning.
// `trace_name` ("text" or "negative") is where a trace records tokens and states.
Tensor text_states(Session& session, const std::string& prompt, const std::string& trace_name, const Progress& progress);

// The states [B, T, Cctx] of tokens ids and mask, I32 [B, T]; captured where that is faster, so the next call may overwrite them.
Tensor encode_tokens(const std::shared_ptr<const TextEncoder>& encoder, Session& session, const Tensor& ids, const Tensor& mask,
                     const BeforeBlock& before_layer = {});

}  // namespace flux2
