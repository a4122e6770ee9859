#include "base/foreign_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace flux2 {
namespace {

TEST(PlainName, IsNeverAPath) {
  for (const char* name : {"ink", "flux.2-klein-4b", "my style v2", "straße", "a:1", "..."}) EXPECT_TRUE(is_plain_name(name));
  for (const char* path : {"", ".", "..", "/etc/passwd", "a/b", "../a", "a\\b", "a\nb", "\x7f", "\xff"})
    EXPECT_FALSE(is_plain_name(path)) << path;
  EXPECT_FALSE(is_plain_name(std::string("a\0b", 3)));
  EXPECT_FALSE(is_plain_name(std::string(300, 'a')));
}

TEST(VisibleText, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(visible_text("a fox, “naïve” 狐 🦊\tnext\nline"), "a fox, “naïve” 狐 🦊\tnext\nline");
  EXPECT_EQ(visible_text("\x1b[31mred\r\b\x07"), "\\u001b[31mred\\u000d\\u0008\\u0007");
  EXPECT_EQ(visible_text("\x7f \xc2\x9b[2J \xc2\x85"), "\\u007f \\u009b[2J \\u0085");
  EXPECT_EQ(visible_text("\xe2\x80\xae|\xe2\x81\xa6|\xe2\x81\xa9|\xe2\x80\x8e|\xe2\x80\x8f|\xd8\x9c|\xe2\x80\xaa"),
            "\\u202e|\\u2066|\\u2069|\\u200e|\\u200f|\\u061c|\\u202a");
  EXPECT_EQ(visible_text("\xe2\x80\xa8|\xe2\x80\xa9"), "\\u2028|\\u2029");
  EXPECT_EQ(visible_text("\xff|\xc0\x9b|\xe2\x80|\xed\xa0\x80|\x9b"), "\\xff|\\xc0\\x9b|\\xe2\\x80|\\xed\\xa0\\x80|\\x9b");
  EXPECT_EQ(visible_text("a\nb", LineBreaks::Escape), "a\\u000ab");
}

TEST(VisibleText, LeavesNoControlInAnyByteString) {
  uint32_t state = 1;
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 24; ++i) text += static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
    for (const char c : visible_text(text, LineBreaks::Escape))
      ASSERT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\t') << round;
  }
}

TEST(VisibleText, KeepsTheMeaningOfJson) {
  const nlohmann::json json = {{"key\x1b\x7f", "\xe2\x80\xae \xc2\x9b \n\t"}};
  EXPECT_EQ(nlohmann::json::parse(visible_text(json.dump(2))), json);
}

TEST(VisibleMessage, IndentsFurtherLines) {
  EXPECT_EQ(visible_message("one"), "one");
  EXPECT_EQ(visible_message("one\nflux2: all is well\n  two\n"), "one\n  flux2: all is well\n  two\n");
}

}  // namespace
}  // namespace flux2
