#include "base/edit_distance.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

namespace flux2 {

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
  for (const std::string& c : candidates) ranked.emplace_back(edit_distance(lower(word), lower(c)), c);
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> best;
  for (const auto& [distance, text] : ranked)
    if (best.size() < count) best.push_back(text);
  return best;
}

}  // namespace flux2
