#include "text/unicode.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

#include "text/unicode_tables.h"

namespace flux2 {

namespace {

using namespace unicode_tables;

// The range of a sorted table that holds `code`, or nullptr.
template <class Range>
const Range* find_range(std::span<const Range> table, char32_t code) {
  auto it = std::upper_bound(table.begin(), table.end(), code, [](char32_t c, const Range& r) { return c < r.first; });
  if (it == table.begin() || (--it)->last < code) return nullptr;
  return &*it;
}

constexpr std::array<CharClass, 128> kAsciiClasses = [] {
  std::array<CharClass, 128> classes{};
  for (int c = 'a'; c <= 'z'; ++c) classes[c] = classes[c - 'a' + 'A'] = CharClass::Letter;
  for (int c = '0'; c <= '9'; ++c) classes[c] = CharClass::Number;
  for (int c = '\t'; c <= '\r'; ++c) classes[c] = CharClass::Space;
  classes[' '] = CharClass::Space;
  return classes;
}();

// Hangul syllables are laid out as (leading · 21 + vowel) · 28 + trailing; see chapter 3.12 of the Unicode standard.
constexpr char32_t kSyllables = 0xAC00, kLeading = 0x1100, kVowels = 0x1161, kTrailing = 0x11A7;
constexpr char32_t kLeadingCount = 19, kVowelCount = 21, kTrailingCount = 28;
constexpr char32_t kSyllableCount = kLeadingCount * kVowelCount * kTrailingCount;

constexpr char32_t kFirstUnstable = 0x300;  // below it every code point is a starter that NFC leaves alone

uint8_t combining_class(char32_t code) {
  if (code < kFirstUnstable) return 0;
  const CombiningRange* range = find_range(kCombining, code);
  return range ? range->combining : 0;
}

void append_decomposed(std::u32string& out, char32_t code) {
  if (const char32_t s = code - kSyllables; s < kSyllableCount) {
    out += kLeading + s / (kVowelCount * kTrailingCount);
    out += kVowels + s % (kVowelCount * kTrailingCount) / kTrailingCount;
    if (s % kTrailingCount != 0) out += kTrailing + s % kTrailingCount;
    return;
  }
  auto it = std::lower_bound(kDecompositions.begin(), kDecompositions.end(), code,
                             [](const Decomposition& d, char32_t c) { return d.code < c; });
  if (it == kDecompositions.end() || it->code != code) {
    out += code;
    return;
  }
  append_decomposed(out, it->first);
  if (it->second != 0) append_decomposed(out, it->second);
}

char32_t compose(char32_t first, char32_t second) {  // 0 where the pair has no composite
  if (const char32_t l = first - kLeading, v = second - kVowels; l < kLeadingCount && v < kVowelCount) {
    return kSyllables + (l * kVowelCount + v) * kTrailingCount;
  }
  if (const char32_t s = first - kSyllables, t = second - kTrailing;
      s < kSyllableCount && s % kTrailingCount == 0 && t > 0 && t < kTrailingCount) {
    return first + t;
  }
  auto it = std::lower_bound(kComposing.begin(), kComposing.end(), std::tuple(first, second),
                             [](uint16_t i, const std::tuple<char32_t, char32_t>& pair) {
                               return std::tuple<char32_t, char32_t>(kDecompositions[i].first, kDecompositions[i].second) < pair;
                             });
  if (it == kComposing.end() || kDecompositions[*it].first != first || kDecompositions[*it].second != second) return 0;
  return kDecompositions[*it].code;
}

// Sorts each run of marks by combining class; equal classes keep their order.
void order_marks(std::u32string& text) {
  for (size_t i = 0; i < text.size();) {
    if (combining_class(text[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < text.size() && combining_class(text[end]) != 0) ++end;
    std::stable_sort(text.begin() + i, text.begin() + end,
                     [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    i = end;
  }
}

// Joins each code point to the last starter unless another of the same or a higher class stands between them.
void compose_in_place(std::u32string& text) {
  constexpr size_t kNone = std::u32string::npos;
  size_t starter = kNone, size = 0;
  int last_class = -1;  // of the code points kept since the starter; -1 when it is the last one kept
  for (char32_t code : text) {
    const int c = combining_class(code);
    if (starter != kNone && last_class < c) {
      if (const char32_t composite = compose(text[starter], code)) {
        text[starter] = composite;
        continue;
      }
    }
    if (c == 0) {
      starter = size;
      last_class = -1;
    } else {
      last_class = c;
    }
    text[size++] = code;
  }
  text.resize(size);
}

bool is_continuation(unsigned char byte) { return (byte & 0xC0) == 0x80; }

// Length of the sequence at `pos`, and how much of it is there and well formed; equal when it is complete.
struct Sequence {
  size_t length, present;
};

Sequence sequence_at(std::string_view text, size_t pos) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(pos);
  if (lead < 0x80) return {1, 1};
  if (lead < 0xC2 || lead > 0xF4) return {2, 1};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte is narrower after some leads: no overlong forms, no surrogates, nothing above U+10FFFF.
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  size_t present = 1;
  if (pos + 1 < text.size() && byte(pos + 1) >= low && byte(pos + 1) <= high) {
    ++present;
    while (present < length && pos + present < text.size() && is_continuation(byte(pos + present))) ++present;
  }
  return {length, present};
}

}  // namespace

CharClass char_class(char32_t code) {
  if (code < 128) return kAsciiClasses[code];
  const ClassRange* range = find_range(kClasses, code);
  return range ? range->kind : CharClass::Other;
}

Casing casing_of(char32_t code) {
  if (code >= 'a' && code <= 'z') return Casing::Lower;
  if (code >= 'A' && code <= 'Z') return Casing::Upper;
  if (code < 128) return Casing::None;
  const CasingRange* range = find_range(kCasings, code);
  return range ? range->casing : Casing::None;
}

char32_t next_code_point(std::string_view text, size_t& pos) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t at = pos;
  if (byte(at) < 0x80) return byte(pos++);
  const Sequence sequence = sequence_at(text, at);
  pos += sequence.present;
  if (sequence.present < sequence.length) return kReplacementCharacter;
  char32_t code = byte(at) & (0xFF >> (sequence.length + 1));
  for (size_t i = 1; i < sequence.length; ++i) code = code << 6 | (byte(at + i) & 0x3F);
  return code;
}

void append_utf8(std::string& out, char32_t code) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

bool is_ascii(std::string_view text) {
  size_t i = 0;
  for (uint64_t word; i + sizeof word <= text.size(); i += sizeof word) {
    std::memcpy(&word, text.data() + i, sizeof word);
    if (word & 0x8080808080808080u) return false;
  }
  return std::all_of(text.begin() + i, text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool is_valid_utf8(std::string_view text) {
  if (is_ascii(text)) return true;
  for (size_t pos = 0; pos < text.size();) {
    const Sequence sequence = sequence_at(text, pos);
    if (sequence.present < sequence.length) return false;
    pos += sequence.length;
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) append_utf8(out, next_code_point(text, pos));
  return out;
}

std::string normalize_nfc(std::string_view text) {
  if (is_ascii(text)) return std::string(text);
  std::u32string decomposed;
  decomposed.reserve(text.size());
  bool stable = true;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t code = next_code_point(text, pos);
    stable = stable && code < kFirstUnstable;
    append_decomposed(decomposed, code);
  }
  if (stable) return std::string(text);
  order_marks(decomposed);
  compose_in_place(decomposed);
  std::string out;
  out.reserve(text.size());
  for (char32_t code : decomposed) append_utf8(out, code);
  return out;
}

}  // namespace flux2
