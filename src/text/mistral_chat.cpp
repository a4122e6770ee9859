#include "text/mistral_chat.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"

namespace flux2 {

namespace {

constexpr const char* kImage = "[IMG]";
constexpr std::string_view kMarkers[] = {"<s>",         "</s>",      "[INST]",          "[/INST]",         "[IMG]",
                                         "[IMG_BREAK]", "[IMG_END]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"};

int32_t marker(const BpeTokenizer& tokenizer, const char* name) {
  const auto id = tokenizer.id_of(name);
  if (!id)
    throw Error(ErrorCode::Incompatible, fmt::format("the tokenizer has no token {}", name),
                "use the tokenizer folder that belongs to the text encoder");
  return *id;
}

// Removing one marker can put another one together, so this repeats until none is left.
std::string without_markers(std::string_view given) {
  std::string text(given);
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view name : kMarkers)
      for (size_t at; (at = text.find(name)) != std::string::npos; found = true) text.erase(at, name.size());
  }
  return text;
}

}  // namespace

int32_t image_token(const BpeTokenizer& tokenizer) { return marker(tokenizer, kImage); }

ChatTokens mistral_chat_tokens(const BpeTokenizer& tokenizer, std::string_view system, const std::vector<ChatTurn>& turns) {
  ChatTokens tokens;
  const auto add_marker = [&](const char* name) { tokens.ids.push_back(marker(tokenizer, name)); };
  const auto add_text = [&](std::string_view text) {
    const std::vector<int32_t> ids = tokenizer.encode(without_markers(text));
    tokens.ids.insert(tokens.ids.end(), ids.begin(), ids.end());
  };
  const auto add_image = [&](const TokenGrid& grid) {
    require(grid.rows > 0 && grid.columns > 0, "an image of {}×{} tokens", grid.rows, grid.columns);
    for (int row = 0; row < grid.rows; ++row) {
      tokens.ids.insert(tokens.ids.end(), static_cast<size_t>(grid.columns), image_token(tokenizer));
      add_marker(row + 1 < grid.rows ? "[IMG_BREAK]" : "[IMG_END]");
    }
  };
  add_marker("<s>");
  if (!system.empty()) {
    add_marker("[SYSTEM_PROMPT]");
    add_text(system);
    add_marker("[/SYSTEM_PROMPT]");
  }
  for (const ChatTurn& turn : turns) {
    add_marker("[INST]");
    for (const ChatPart& part : turn) {
      if (part.image) add_image(*part.image);
      else add_text(part.text);
    }
    add_marker("[/INST]");
  }
  tokens.stop = {marker(tokenizer, "</s>")};
  return tokens;
}

std::string without_loose_spaces(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kReplaced[] = {
      {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
      {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kReplaced)
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}

}  // namespace flux2
