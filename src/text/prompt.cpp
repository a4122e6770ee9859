#include "text/prompt.h"

#include <algorithm>
#include <span>

#include "base/error.h"

namespace flux2 {

namespace {

constexpr std::string_view kPrefix = "<|im_start|>user\n";
constexpr std::string_view kSuffix = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

}  // namespace

std::string render_qwen_prompt(std::string_view prompt) { return std::string(kPrefix).append(prompt).append(kSuffix); }

std::string unused_part(const PromptTokens& tokens, bool quote) {
  return fmt::format("its last {} bytes are not used{}", tokens.dropped.size(), quote ? ": \"" + tokens.dropped + "\"" : "");
}

PromptTokens tokenize_prompt(const BpeTokenizer& tokenizer, std::string_view prompt, int length) {
  check(length > 0, "a prompt needs a positive number of tokens, not {}", length);
  for (const char* marker : {"<|im_start|>", "<|im_end|>"}) {
    if (!tokenizer.id_of(marker)) {
      throw Error(ErrorCode::Incompatible, fmt::format("the tokenizer has no token {}", marker),
                  "use the tokenizer folder that belongs to the Qwen3 text encoder");
    }
  }

  PromptTokens tokens;
  tokens.ids = tokenizer.encode(render_qwen_prompt(prompt));
  const size_t all = tokens.ids.size(), room = static_cast<size_t>(length);
  if (all > room) {
    // The suffix begins with an added token, so its ids do not depend on the prompt before it.
    const size_t begin = std::max(room, tokenizer.encode(kPrefix).size());
    const size_t end = all - tokenizer.encode(kSuffix).size();
    if (begin < end) tokens.dropped = tokenizer.decode(std::span(tokens.ids).subspan(begin, end - begin));
  }
  tokens.real = static_cast<int>(std::min(all, room));
  tokens.ids.resize(room, tokenizer.pad_id());
  tokens.mask.assign(room, 0);
  std::fill_n(tokens.mask.begin(), tokens.real, 1);
  return tokens;
}

}  // namespace flux2
