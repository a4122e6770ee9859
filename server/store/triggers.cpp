#include "server/store/triggers.h"

#include "server/store/folded_text.h"
#include "text/unicode.h"

namespace flux2 {

namespace {

constexpr int64_t kLongestTrigger = 40;  // characters after the "@"

bool is_word_character(char32_t c) {
  const CharClass group = char_class(c);
  return group == CharClass::Letter || group == CharClass::Number || c == '_' || c == '-' ||
         (c >= 0x300 && c <= 0x36F);  // accents that follow their letter
}

}  // namespace

bool is_trigger(std::string_view text) {
  if (!text.starts_with('@') || !is_valid_utf8(text)) return false;
  int64_t count = 0;
  for (size_t at = 1; at < text.size(); ++count)
    if (!is_word_character(next_code_point(text, at))) return false;
  return count >= 1 && count <= kLongestTrigger;
}

std::string folded_trigger(std::string_view trigger) { return folded(normalize_nfc(replace_invalid_utf8(trigger))); }

std::string trigger_of_name(std::string_view name) {
  std::string trigger = "@";
  int64_t count = 0;
  for (size_t at = 0; at < name.size() && count < kLongestTrigger;) {
    const char32_t c = next_code_point(name, at);
    if (!is_word_character(c)) continue;
    append_utf8(trigger, c);
    ++count;
  }
  return count == 0 ? std::string() : trigger;
}

std::vector<TriggerWord> trigger_words(std::string_view prompt) {
  std::vector<TriggerWord> words;
  bool in_word = false;
  int64_t characters = 0;
  for (size_t at = 0; at < prompt.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(prompt, at);
    ++characters;
    if (c != '@' || in_word) {
      in_word = is_word_character(c);
      continue;
    }
    TriggerWord word{.begin = begin, .end = at, .start = characters - 1, .length = 1, .fold = {}};
    while (at < prompt.size()) {
      size_t next = at;
      if (!is_word_character(next_code_point(prompt, next))) break;
      at = word.end = next;
      ++characters, ++word.length;
    }
    in_word = word.length > 1;
    if (word.length == 1 || word.length > 4 * kLongestTrigger) continue;
    word.fold = folded_trigger(prompt.substr(word.begin, word.end - word.begin));
    words.push_back(std::move(word));
  }
  return words;
}

}  // namespace flux2
