#include "image/text_encoding.h"
#include "base/text.h"

#include <gtest/gtest.h>

namespace flux2 {
namespace {

using namespace std::string_literals;

TEST(TextEncoding, TellsUtf8FromOtherBytes) {
  EXPECT_TRUE(is_utf8("plain, é, 漢字, 😀"));
  for (const char* bad :
       {"\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff", "a\xf0\x9f\x98"}) {
    EXPECT_FALSE(is_utf8(bad)) << bad;
  }
}

TEST(TextEncoding, Latin1BothWays) {
  EXPECT_EQ(utf8_to_latin1("caf\u00e9 \u00ff"), "caf\xe9 \xff");
  EXPECT_EQ(utf8_to_latin1("\u0100"), std::nullopt);
  EXPECT_EQ(utf8_to_latin1("\xe9"), std::nullopt);
  EXPECT_EQ(latin1_to_utf8("caf\xe9"), "caf\u00e9");
  EXPECT_EQ(any_to_utf8("caf\xe9"), any_to_utf8("caf\u00e9"));
}

TEST(TextEncoding, Utf16BothWays) {
  EXPECT_EQ(utf8_to_utf16be("aé漢😀"), "\0a\0\xe9\x6f\x22\xd8\x3d\xde\x00"s);
  EXPECT_EQ(utf16_to_utf8(utf8_to_utf16be("aé漢😀"), std::endian::big), "aé漢😀");
  EXPECT_EQ(utf16_to_utf8("a\0\x3d\xd8\x00\xde"s, std::endian::little), "a😀");
  EXPECT_EQ(utf16_to_utf8("\xd8\x3d\0a"s, std::endian::big), "\ufffda");
  EXPECT_EQ(utf16_to_utf8("\xde\x00\0"s, std::endian::big), "\ufffd");
}

}  // namespace
}  // namespace flux2
