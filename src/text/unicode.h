#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// Written by hand rather than taken from utf8proc: the core builds on machines that have only a C++ compiler, CUDA and a few
// common libraries, and utf8proc is not among them. Tests compare every code point with utf8proc where it is installed.

namespace flux2 {

// The character classes that the tokenizers' patterns use: \p{L}, \p{N}, \s, or none of them. Marks, symbols, punctuation,
// controls and unassigned code points are Other.
enum class CharClass : uint8_t { Other, Letter, Number, Space };
CharClass char_class(char32_t code);

// How Tekken's pattern sees a character: upper and title case (\p{Lu}, \p{Lt}), lower case (\p{Ll}), letters without case and
// marks
// (\p{Lm}, \p{Lo}, \p{M}), or none of these.
enum class Casing : uint8_t { None, Upper, Lower, Neither };
Casing casing_of(char32_t code);

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

// Reads the code point at `pos` < text.size() and moves `pos` behind it. A malformed sequence gives U+FFFD. Its maximal subpart
// is skipped, as Unicode recommends: the longest prefix of a well-formed sequence, or one byte.
char32_t next_code_point(std::string_view text, size_t& pos);

// `code` must be a scalar value (below U+110000 and no surrogate).
void append_utf8(std::string& out, char32_t code);

bool is_ascii(std::string_view text);
bool is_valid_utf8(std::string_view text);
std::string replace_invalid_utf8(std::string_view text);  // malformed parts become U+FFFD

// Normalization form C of valid UTF-8: canonical decomposition, ordering of marks, canonical composition.
std::string normalize_nfc(std::string_view text);

}  // namespace flux2
