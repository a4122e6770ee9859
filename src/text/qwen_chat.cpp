#include "text/qwen_chat.h"

#include <fmt/format.h>

#include "base/error.h"

namespace flux2 {

std::string render_qwen_chat(std::string_view system, std::string_view text) {
  return fmt::format(
      "<|im_start|>system\n{}<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n", system,
      text);
}

ChatTokens qwen_chat_tokens(const BpeTokenizer& tokenizer, std::string_view system, std::string_view text) {
  ChatTokens tokens;
  const auto end = tokenizer.id_of("<|im_end|>");
  if (!end || !tokenizer.id_of("<|im_start|>"))
    fail(ErrorCode::Incompatible,
         "the tokenizer has no turns of a conversation (<|im_start|>, <|im_end|>), as those of Qwen3 have");
  tokens.ids = tokenizer.encode(render_qwen_chat(system, text));
  tokens.stop = {*end};
  if (const auto over = tokenizer.id_of("<|endoftext|>")) tokens.stop.push_back(*over);
  return tokens;
}

}  // namespace flux2
