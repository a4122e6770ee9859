#pragma once

#include <string>
#include <string_view>
#include <vector>

// The words by which prompts name elements: "@" and 1 to 40 letters, digits, "_" or "-".
namespace flux2 {

bool is_trigger(std::string_view text);

// The same for triggers that differ in case alone, or in how accents are written.
std::string folded_trigger(std::string_view trigger);

// "@TallTower" of "Tall Tower"; empty if the name has no character that a trigger may have.
std::string trigger_of_name(std::string_view name);

// A word of a prompt that may be a trigger. The whole run of characters counts, so "@Hero" is not found in "@Heroine", and an "@"
// within a word begins none.
struct TriggerWord {
  size_t begin = 0, end = 0;      // bytes
  int64_t start = 0, length = 0;  // the same in characters
  std::string fold;
};
std::vector<TriggerWord> trigger_words(std::string_view prompt);

}  // namespace flux2
