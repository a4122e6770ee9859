#include "cli/help_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace flux2 {

size_t columns(std::string_view utf8) {
  return static_cast<size_t>(
      std::count_if(utf8.begin(), utf8.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

namespace {

// Where the first word ends. A quoted part of a command belongs to one word.
size_t word_end(std::string_view text, bool is_command) {
  size_t end = 0;
  for (char quote = 0; end < text.size() && (quote || text[end] != ' '); ++end) {
    const bool is_quote = is_command && (text[end] == '"' || text[end] == '\'');
    if (quote ? text[end] == quote : is_quote) quote = quote ? '\0' : text[end];
  }
  return end;
}

// `ending` stands at the end of each line but the last.
std::string wrapped_words(std::string_view text, bool is_command, std::string_view ending, size_t indent, size_t used) {
  std::string out;
  for (bool first = true; !text.empty(); first = false) {
    const size_t end = word_end(text, is_command);
    const std::string_view word = text.substr(0, end);
    if (!first && used + 1 + columns(word) + ending.size() > kHelpWidth) {
      out.append(ending).append("\n").append(indent, ' ');
      used = indent;
    } else if (!first) {
      out += ' ';
      ++used;
    }
    out += word;
    used += columns(word);
    text = end == text.size() ? std::string_view{} : text.substr(end + 1);
  }
  return out;
}

}  // namespace

std::string wrapped(std::string_view text, size_t indent, size_t used) { return wrapped_words(text, false, "", indent, used); }

std::string wrapped_command(std::string_view text, size_t indent, size_t used) {
  return wrapped_words(text, true, " \\", indent, used);
}

std::string two_columns(const std::string& left, std::string_view right, size_t indent) {
  const size_t used = columns(left);
  const std::string gap = used + 2 > indent ? "\n" + std::string(indent, ' ') : std::string(indent - used, ' ');
  return left + gap + wrapped(right, indent, indent) + "\n";
}

std::string option_usage(const OptionSpec& option) {
  return (option.letter ? fmt::format("-{}, ", option.letter) : "") + "--" + option.name +
         (option.value.empty() ? "" : " " + option.value);
}

}  // namespace flux2
