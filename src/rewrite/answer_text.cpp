#include "rewrite/answer_text.h"

#include <array>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace flux2 {

namespace {

constexpr std::string_view kThink = "<think>", kThought = "</think>", kFence = "```";
constexpr std::string_view kOpen = "\u201c", kClose = "\u201d";

std::string_view without_thoughts(std::string_view text) {
  if (!text.starts_with(kThink)) return text;
  const size_t end = text.find(kThought);
  return end == text.npos ? std::string_view{} : trimmed(text.substr(end + kThought.size()));
}

// "```text\n…\n```"; the word behind the first fence names a language.
std::string_view without_fence(std::string_view text) {
  if (!text.starts_with(kFence) || !text.ends_with(kFence) || text.size() < 2 * kFence.size()) return text;
  const std::string_view inside = text.substr(kFence.size(), text.size() - 2 * kFence.size());
  if (inside.find(kFence) != inside.npos) return text;
  const size_t line = inside.find('\n');
  if (line == inside.npos) return trimmed(inside);
  const bool is_language = inside.substr(0, line).find_first_of(" \t") == inside.npos;
  return trimmed(is_language ? inside.substr(line + 1) : inside);
}

// Quotes around the whole text, if there are no others of their kind inside.
std::string_view without_quotes(std::string_view text) {
  const std::array<std::pair<std::string_view, std::string_view>, 3> pairs = {{{"\"", "\""}, {kOpen, kClose}, {"'", "'"}}};
  for (const auto& [open, close] : pairs) {
    if (text.size() < open.size() + close.size() || !text.starts_with(open) || !text.ends_with(close)) continue;
    const std::string_view inside = text.substr(open.size(), text.size() - open.size() - close.size());
    if (inside.find(open) == inside.npos && inside.find(close) == inside.npos) return trimmed(inside);
  }
  return text;
}

std::optional<std::string> enhanced_prompt(std::string_view text) {
  const size_t first = text.find('{'), last = text.rfind('}');
  if (first == text.npos || last == text.npos || last < first) return std::nullopt;
  const auto json = try_parse_json(text.substr(first, last - first + 1));
  if (!json || !json->is_object()) return std::nullopt;
  const auto found = json->find("enhanced_prompt");
  return found != json->end() && found->is_string() ? std::optional(found->get<std::string>()) : std::nullopt;
}

}  // namespace

std::string prompt_in_answer(std::string_view answer) {
  std::string_view text = without_thoughts(trimmed(answer));
  const auto enhanced = enhanced_prompt(text);
  if (enhanced) text = trimmed(*enhanced);
  text = without_quotes(without_fence(text));
  if (text.empty()) fail(ErrorCode::BadFile, "the language model answered nothing");
  for (const char c : text)
    if (static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t' && c != '\r')
      fail(ErrorCode::BadFile, "the language model answered something that is not text");
  if (!is_utf8(text)) fail(ErrorCode::BadFile, "the language model answered something that is not text");
  return std::string(text);
}

std::vector<std::string> quoted_texts(std::string_view prompt) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < prompt.size(); ++i) {
    const bool straight = prompt[i] == '"', curly = prompt.substr(i).starts_with(kOpen);
    if (!straight && !curly) continue;
    const size_t begin = i + (straight ? 1 : kOpen.size());
    const size_t end = straight ? prompt.find('"', begin) : prompt.find(kClose, begin);
    if (end == prompt.npos) continue;
    if (end > begin) texts.emplace_back(prompt.substr(begin, end - begin));
    i = end + (straight ? 0 : kClose.size() - 1);
  }
  return texts;
}

std::vector<std::string> lost_quotes(std::string_view prompt, std::string_view rewritten) {
  std::vector<std::string> lost;
  for (std::string& text : quoted_texts(prompt))
    if (rewritten.find(text) == rewritten.npos) lost.push_back(std::move(text));
  return lost;
}

std::string in_one_line(std::string_view text) {
  std::string line;
  while (!text.empty()) {
    const size_t end = text.find_first_of("\r\n");
    const std::string_view piece = trimmed(text.substr(0, end));
    if (!line.empty() && !piece.empty()) line += ' ';
    line += piece;
    text = end == text.npos ? std::string_view{} : text.substr(end + 1);
  }
  return line;
}

std::string without_unfinished_sentence(std::string_view text) {
  constexpr size_t kLongestRest = 200;
  text = trimmed(text);
  const size_t stop = text.find_last_of(".!?");
  const bool is_near = stop != text.npos && text.size() - stop <= kLongestRest;
  return std::string(is_near ? text.substr(0, stop + 1) : text);
}

}  // namespace flux2
