#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe_tokenizer.h"

namespace flux2 {

// The prompt as one user turn of Qwen3's chat format, with the answer started and thinking switched off:
// <|im_start|>user⏎{prompt}<|im_end|>⏎<|im_start|>assistant⏎<think>⏎⏎</think>⏎⏎ The prompt is inserted unchanged. Special tokens
// written in it are treated as special tokens, as in the reference.
std::string render_qwen_prompt(std::string_view prompt);

// How a text encoder wants its prompts. The tokenizer's markers tell which of the two it is.
enum class PromptFormat {
  Qwen3,    // one user turn as above, padding behind it
  Mistral,  // <s>[SYSTEM_PROMPT]{system}[/SYSTEM_PROMPT][INST]{prompt}[/INST], padding before it; [IMG] is taken out of the
            // prompt
};
// Throws Incompatible when the vocabulary has the turn markers of neither.
PromptFormat prompt_format(const BpeTokenizer& tokenizer);

// The input of the text encoder: `length` slots.
struct PromptTokens {
  std::vector<int32_t> ids;   // [length], real tokens and pads
  std::vector<int32_t> mask;  // [length], 1 for a real token and 0 for a pad
  int real = 0;
  bool pads_first = false;  // the real tokens are the last ones
  int shared = 0;           // so many real tokens at the beginning are the same for every prompt of this model
  std::string dropped;      // the end of the prompt that did not fit, for a warning; usually empty

  int first() const { return pads_first ? static_cast<int>(ids.size()) - real : 0; }  // slot of the first real token
};

// "its last 37 bytes are not used", with the text itself if messages may quote prompts.
std::string unused_part(const PromptTokens& tokens, bool quote);

// Renders and encodes a prompt. A longer sequence keeps its first `length` ids, which cuts the end of the template too.
// The system turn of Mistral's format is the tokenizer's system_message(). If that is empty, it is FLUX.2-dev's, whose tokens
// this program knows for the published vocabulary; Incompatible is thrown if the tokenizer has another one.
PromptTokens tokenize_prompt(const BpeTokenizer& tokenizer, std::string_view prompt, int length);

}  // namespace flux2
