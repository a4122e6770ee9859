#include "cli/help_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace flux2 {

size_t columns(std::string_view utf8) {
  return static_cast<size_t>(
      std::count_if(utf8.begin(), utf8.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string wrapped(std::string_view text, size_t indent, size_t used) {
  std::string out;
  for (bool first = true; !text.empty(); first = false) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (!first && used + 1 + columns(word) > kHelpWidth) {
      out += "\n" + std::string(indent, ' ');
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

std::string wrapped_command(std::string_view text, size_t indent, size_t used) {
  std::string out;
  for (bool first = true; !text.empty(); first = false) {
    size_t end = 0;
    for (char quote = 0; end < text.size() && (quote || text[end] != ' '); ++end) {
      if (quote ? text[end] == quote : text[end] == '"' || text[end] == '\'') quote = quote ? '\0' : text[end];
    }
    const std::string_view word = text.substr(0, end);
    constexpr size_t kBackslash = 2;  // with its space
    if (!first && used + 1 + columns(word) + kBackslash > kHelpWidth) {
      out += " \\\n" + std::string(indent, ' ');
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
