#include "server/store/folded_text.h"

#include <gtest/gtest.h>

namespace flux2 {
namespace {

TEST(FoldedText, IgnoresCaseInSeveralAlphabets) {
  EXPECT_EQ(folded("A Red FOX, 42!"), "a red fox, 42!");
  EXPECT_EQ(folded("ÄÖÜ ß ŁÓDŹ Ÿ"), "äöü ß łódź ÿ");
  EXPECT_EQ(folded("ΑΘΉΝΑΣ"), folded("αθήνας"));
  EXPECT_EQ(folded("МОСКВА Ёж"), "москва ёж");
  EXPECT_EQ(folded("東京 × 4"), "東京 × 4");
}

TEST(FoldedText, FoldedTextStaysAsItIs) {
  for (char32_t c = 1; c < 0x3000; ++c) {
    std::string text(1, ' ');
    if (c < 0x80) text[0] = static_cast<char>(c);
    else if (c < 0x800) text = {static_cast<char>(0xC0 | (c >> 6)), static_cast<char>(0x80 | (c & 0x3F))};
    else
      text = {static_cast<char>(0xE0 | (c >> 12)), static_cast<char>(0x80 | ((c >> 6) & 0x3F)),
              static_cast<char>(0x80 | (c & 0x3F))};
    EXPECT_EQ(folded(folded(text)), folded(text)) << static_cast<uint32_t>(c);
  }
}

TEST(FoldedText, ReplacesMalformedBytes) {
  EXPECT_EQ(folded("A\xff"
                   "B"),
            "a\xef\xbf\xbd"
            "b");
}

}  // namespace
}  // namespace flux2
