#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace flux2 {

// Splits a line like a shell: words are separated by blanks, '…' and "…" group them, \ escapes the next character (inside "…"
// only " and \). Throws InvalidArgument for a quote that is never closed.
std::vector<std::string> shell_words(std::string_view line);

// A word as shell_words() reads it back.
std::string shell_quoted(std::string_view word);

// "steps=8 seed=3" → its pairs, when every word is one and the keys look like keys.
std::optional<std::vector<std::pair<std::string, std::string>>> key_values(std::string_view line);

// "$2" → 2, "$" → 0; nothing for anything else.
std::optional<int> picture_number(std::string_view word);

}  // namespace flux2
