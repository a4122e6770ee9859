#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe_tokenizer.h"
#include "text/qwen_chat.h"

namespace flux2 {

// How many tokens of the language model an image takes: `rows` lines of `columns`.
struct TokenGrid {
  int rows = 0, columns = 0;

  int tokens() const { return rows * (columns + 1); }  // each line ends with a token of its own
};

// A piece of what the user says: a text or an image.
struct ChatPart {
  std::string text = {};
  std::optional<TokenGrid> image = {};
};
using ChatTurn = std::vector<ChatPart>;

// A system turn and the user's turns in the format of Mistral's instruction models, ready for the answer:
// <s>[SYSTEM_PROMPT]{system}[/SYSTEM_PROMPT][INST]…[/INST][INST]…[/INST]
// An image is a line of [IMG] for each row of its grid, with [IMG_BREAK] behind each line and [IMG_END] behind the last. Markers
// that the texts contain are taken out, so that no text can pretend to be another turn. Throws Incompatible if the vocabulary
// lacks a marker.
ChatTokens mistral_chat_tokens(const BpeTokenizer& tokenizer, std::string_view system, const std::vector<ChatTurn>& turns);

// The id that stands for a piece of an image in these tokens. Throws Incompatible if the vocabulary has none.
int32_t image_token(const BpeTokenizer& tokenizer);

// The text that transformers makes of Mistral's tokens: without the space before punctuation and shortened words.
std::string without_loose_spaces(std::string text);

}  // namespace flux2
