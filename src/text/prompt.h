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

// The input of the text encoder: `length` slots, real tokens first.
struct PromptTokens {
  std::vector<int32_t> ids;   // [length], the pad id from `real` on
  std::vector<int32_t> mask;  // [length], 1 for a real token and 0 for a pad
  int real = 0;
  std::string dropped;  // the end of the prompt that did not fit, for a warning; usually empty
};

// "its last 37 bytes are not used", with the text itself if messages may quote prompts.
std::string unused_part(const PromptTokens& tokens, bool quote);

// Renders and encodes a prompt. A longer sequence keeps its first `length` ids, which cuts the end of the template too.
// Throws Incompatible when the vocabulary lacks the template's turn markers.
PromptTokens tokenize_prompt(const BpeTokenizer& tokenizer, std::string_view prompt, int length);

}  // namespace flux2
