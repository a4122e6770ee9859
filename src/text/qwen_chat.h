#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/bpe_tokenizer.h"

namespace flux2 {

// A system turn and a user turn of Qwen3's chat format, with the answer started and thinking switched off:
// <|im_start|>system⏎{system}<|im_end|>⏎<|im_start|>user⏎{text}<|im_end|>⏎<|im_start|>assistant⏎<think>⏎⏎</think>⏎⏎
std::string render_qwen_chat(std::string_view system, std::string_view text);

// Its tokens, and those that end an answer. Throws Incompatible when the vocabulary lacks the turn markers.
struct ChatTokens {
  std::vector<int32_t> ids, stop;
};
ChatTokens qwen_chat_tokens(const BpeTokenizer& tokenizer, std::string_view system, std::string_view text);

}  // namespace flux2
