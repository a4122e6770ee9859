#include "base/text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <numeric>
#include <utility>

namespace flux2 {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlanks);
  return first == text.npos ? std::string_view{} : text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
    const unsigned lead = byte(i);
    const size_t length = lead < 0x80                   ? 1
                          : lead >= 0xc2 && lead < 0xe0 ? 2
                          : (lead & 0xf0) == 0xe0       ? 3
                          : lead >= 0xf0 && lead < 0xf5 ? 4
                                                        : 0;
    if (length == 0 || i + length > text.size()) return false;
    for (size_t k = 1; k < length; ++k)
      if ((byte(i + k) & 0xc0) != 0x80) return false;
    const unsigned second = byte(i + 1);
    if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) || (lead == 0xf0 && second < 0x90) ||
        (lead == 0xf4 && second > 0x8f))
      return false;
    i += length;
  }
  return true;
}

std::string printable(std::string_view name) {
  constexpr size_t kLongest = 120;
  size_t length = std::min(name.size(), kLongest);
  if (length < name.size())
    while (length > 0 && (static_cast<unsigned char>(name[length]) & 0xc0) == 0x80) --length;  // not inside a character
  std::string text(name.substr(0, length));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  if (length < name.size()) text += "…";
  return text;
}

std::string byte_text(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  double value = static_cast<double>(bytes);
  const char* unit = "";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  return value < 10    ? fmt::format("{:.2f} {}", value, unit)
         : value < 100 ? fmt::format("{:.1f} {}", value, unit)
                       : fmt::format("{:.0f} {}", value, unit);
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);  // of the table, one row at a time
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

std::vector<std::string> nearest_words(std::string_view word, const std::vector<std::string>& candidates, size_t count) {
  constexpr size_t kLongest = 200;  // what a person may have meant to type
  const auto lower = [](std::string_view text) {
    std::string out(text.substr(0, kLongest));
    for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return out;
  };
  std::vector<std::pair<size_t, std::string>> ranked;
  ranked.reserve(candidates.size());
  for (const std::string& c : candidates) ranked.emplace_back(edit_distance(lower(word), lower(c)), c);
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> best;
  for (const auto& [distance, text] : ranked)
    if (best.size() < count) best.push_back(text);
  return best;
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  // The beginning of one word alone: "image_dir" of image_directory.
  constexpr size_t kFewest = 4;
  std::vector<std::string> longer;
  std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(longer),
               [&](const std::string& c) { return word.size() >= kFewest && c.starts_with(word); });
  if (longer.size() == 1) return longer[0];
  const auto best = nearest_words(word, candidates, 1);
  // Two changes turn a word of three letters into almost any other.
  const size_t most = word.size() < 2 ? 0 : word.size() < 4 ? 1 : std::max<size_t>(2, word.size() / 3);
  return !best.empty() && edit_distance(word, best[0]) <= most ? best[0] : std::string();
}

}  // namespace flux2
