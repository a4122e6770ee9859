#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

// The text without white space at either end.
std::string_view trimmed(std::string_view text);

// Whether the bytes are valid UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

// A name from a file in a form that is safe to print: control characters are replaced, long names are cut.
std::string printable(std::string_view name);

// "7.22 GiB", "312 KiB", "17 bytes"
std::string byte_text(uint64_t bytes);

// The edit distance: how many letters must be inserted, deleted or replaced to turn one word into the other.
size_t edit_distance(std::string_view a, std::string_view b);

// The `count` candidates nearest to a word, best first. Case is ignored.
std::vector<std::string> nearest_words(std::string_view word, const std::vector<std::string>& candidates, size_t count);

// The nearest candidate, or an empty string when none is close enough to be a typing mistake.
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace flux2
