#include "text/unicode.h"

#include <gtest/gtest.h>

#include "text/unicode_tables.h"

namespace flux2 {
namespace {

std::string utf8(std::u32string_view codes) {
  std::string out;
  for (char32_t code : codes) append_utf8(out, code);
  return out;
}

void expect_class(CharClass expected, std::u32string_view codes) {
  for (char32_t code : codes) EXPECT_EQ(char_class(code), expected) << std::hex << uint32_t(code);
}

TEST(Unicode, ClassesOfCodePoints) {
  expect_class(CharClass::Letter, U"azAZªµßéıſΩжאا你ㄱ가の𐐷𠀀");
  expect_class(CharClass::Number, U"09²½٣Ⅷ①〇𝟘");
  expect_class(CharClass::Space, U"\t\n\v\f\r \u0085\u00a0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000");
  expect_class(CharClass::Other, U"\x01\x1c\x1f\x7f\u200b\u2060\ufeff\u0301\u093e🐱\ufffd\u0378\ue000\U0010ffff");
}

// The table and the shortcut for ASCII must say the same.
TEST(Unicode, AsciiShortcutAgreesWithTheTable) {
  for (char32_t c = 0; c < 128; ++c) {
    CharClass expected = CharClass::Other;
    for (const auto& range : unicode_tables::kClasses) {
      if (range.first <= c && c <= range.last) expected = range.kind;
    }
    EXPECT_EQ(char_class(c), expected) << uint32_t(c);
  }
}

TEST(Unicode, EncodingAndDecodingRoundTrips) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    const std::string text = utf8(std::u32string_view(&code, 1));
    size_t pos = 0;
    ASSERT_EQ(next_code_point(text, pos), code);
    ASSERT_EQ(pos, text.size());
    ASSERT_TRUE(is_valid_utf8(text));
  }
}

TEST(Unicode, ReplacesMaximalSubparts) {
  const struct {
    std::string_view bytes, expected;
  } cases[] = {
      {"a\x80z", "a\uFFFDz"},
      {"\xC0\xAF", "\uFFFD\uFFFD"},                      // overlong
      {"\xE0\x80\x80", "\uFFFD\uFFFD\uFFFD"},            // overlong
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},            // a surrogate
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},  // above U+10FFFF
      {"\xF5\xFF", "\uFFFD\uFFFD"},
      {"\xE2\x82", "\uFFFD"},  // cut off: one subpart
      {"\xE2\x82z", "\uFFFDz"},
      {"\xF0\x9F\x90\xF0\x9F\x90\xB1", "\uFFFD\U0001F431"},
      // The example of the Unicode standard, chapter 3.9.
      {"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd"},
  };
  for (const auto& c : cases) {
    EXPECT_FALSE(is_valid_utf8(c.bytes));
    EXPECT_EQ(replace_invalid_utf8(c.bytes), c.expected);
  }
  EXPECT_TRUE(is_valid_utf8(""));
  EXPECT_TRUE(is_valid_utf8("plain ascii of some length"));
  EXPECT_TRUE(is_valid_utf8("Ein süßer Bär 猫 🐱"));
}

TEST(Unicode, Nfc) {
  const struct {
    std::u32string_view text, expected;
  } cases[] = {
      {U"plain", U"plain"},
      {U"e\u0301te\u0301", U"été"},
      {U"\u212B\u2126\u212A", U"ÅΩK"},       // single replacements
      {U"a\u0323\u0307", U"ạ\u0307"},        // marks of two classes
      {U"a\u0307\u0323", U"ạ\u0307"},        // … given in the other order
      {U"q\u0307\u0323", U"q\u0323\u0307"},  // ordered though nothing composes
      {U"\u1E9B\u0323", U"\u1E9B\u0323"},
      {U"\u0958", U"\u0915\u093C"},    // excluded from composition
      {U"\u0344", U"\u0308\u0301"},    // a mark that decomposes into marks
      {U"a\u0301\u0301", U"á\u0301"},  // the second is blocked
      {U"\u0301a", U"\u0301a"},        // a mark with nothing before it
      {U"\u1112\u1161\u11AB\u1100\u1173\u11AF", U"한글"},
      {U"\uAC00\u11A8", U"각"},  // syllable + trailing consonant
      {U"\uAC01\u11A8", U"각\u11A8"},
      {U"\uF900\U0002F800", U"豈丽"},
      {U"\U0001D15E", U"\U0001D157\U0001D165"},
      {U"\u01D5", U"\u01D5"},  // two levels down and up again
      {U"ﬁ①", U"ﬁ①"},          // compatibility forms stay
  };
  for (const auto& c : cases) EXPECT_EQ(normalize_nfc(utf8(c.text)), utf8(c.expected)) << utf8(c.text);
}

}  // namespace
}  // namespace flux2
