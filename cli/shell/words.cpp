#include "cli/shell/words.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"

namespace flux2 {

std::vector<std::string> shell_words(std::string_view line) {
  std::vector<std::string> words;
  std::string word;
  bool begun = false;
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    const bool escapes =
        c == '\\' && i + 1 < line.size() && quote != '\'' && (quote == 0 || line[i + 1] == '"' || line[i + 1] == '\\');
    if (escapes) {
      word += line[++i], begun = true;
    } else if (quote != 0 && c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '"' || c == '\'')) {
      quote = c, begun = true;
    } else if (quote == 0 && (c == ' ' || c == '\t')) {
      if (begun) words.push_back(std::move(word));
      word.clear(), begun = false;
    } else {
      word += c, begun = true;
    }
  }
  check(quote == 0, "missing closing {}", quote);
  if (begun) words.push_back(std::move(word));
  return words;
}

std::string shell_quoted(std::string_view word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) || c >= 0x80 || std::string_view("_-./:,+@%$=").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return std::string(word);
  std::string quoted = "\"";
  for (const char c : word) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

std::optional<std::vector<std::pair<std::string, std::string>>> key_values(std::string_view line) {
  const size_t first = line.find_first_not_of(" \t");
  const size_t equals = line.find('=');
  // Quotes in a prompt need not match, so it must look like pairs before it is read as words.
  const auto is_key = [](std::string_view key) {
    return !key.empty() &&
           std::all_of(key.begin(), key.end(), [](unsigned char c) { return std::islower(c) || c == '_' || c == '-'; });
  };
  if (first == line.npos || equals == line.npos || !is_key(line.substr(first, equals - first))) return std::nullopt;
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& word : shell_words(line)) {
    const size_t at = word.find('=');
    if (at == word.npos || !is_key(std::string_view(word).substr(0, at))) return std::nullopt;
    pairs.emplace_back(word.substr(0, at), word.substr(at + 1));
  }
  return pairs;
}

std::optional<int> picture_number(std::string_view word) {
  if (!word.starts_with('$')) return std::nullopt;
  int number = 0;
  if (word.size() == 1) return 0;
  const auto [stop, failure] = std::from_chars(word.data() + 1, word.data() + word.size(), number);
  if (failure != std::errc() || stop != word.data() + word.size() || number < 1) return std::nullopt;
  return number;
}

}  // namespace flux2
