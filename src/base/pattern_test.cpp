#include "base/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

#include "base/error.h"

namespace flux2 {
namespace {

std::string pattern_refusal(const std::string& expression) {
  try {
    Pattern pattern(expression);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::InvalidArgument);
    return e.what();
  }
  return "";
}

TEST(Pattern, PlainNamesWorkInEveryBuild) {
  const Pattern name("double_blocks.0");
  EXPECT_EQ(name.text(), "double_blocks.0");
  EXPECT_TRUE(name.found_in("model.double_blocks.0.img_mlp"));
  EXPECT_TRUE(name.found_in("double_blocks_0"));
  EXPECT_FALSE(name.found_in("double_blocks."));
  EXPECT_TRUE(name.matches("double_blocks.0"));
  EXPECT_FALSE(name.matches("double_blocks.01"));
  EXPECT_FALSE(name.found_in(""));
  EXPECT_TRUE(Pattern("").found_in("x"));
  EXPECT_TRUE(Pattern("^final_layer").found_in("final_layer.linear"));
  EXPECT_FALSE(Pattern("^layer").found_in("final_layer.linear"));
  EXPECT_TRUE(Pattern("linear$").found_in("final_layer.linear"));
  EXPECT_FALSE(Pattern("layer$").found_in("final_layer.linear"));
  EXPECT_TRUE(Pattern("^a.c$").found_in("abc"));
  EXPECT_FALSE(Pattern("^a.c$").found_in("abcd"));
  EXPECT_FALSE(Pattern("a\\.c").found_in("abc"));
  EXPECT_TRUE(Pattern("a\\.c").found_in("xa.c"));
}

TEST(Pattern, UnderstandsThePatternsThatPeopleUse) {
  if (!patterns_available()) {
    EXPECT_THAT(pattern_refusal("double_blocks.(1|2)"), testing::HasSubstr("this build has no RE2"));
    return;
  }
  EXPECT_TRUE(Pattern(R"(double_blocks\.(1|2)\.(img|txt)_mlp)").found_in("x.double_blocks.2.txt_mlp.0.weight"));
  EXPECT_TRUE(Pattern(R"(single_blocks\.\d{1,2}\.linear1$)").found_in("single_blocks.47.linear1"));
  EXPECT_TRUE(Pattern(R"(^(?:transformer\.)?single)").found_in("transformer.single_transformer_blocks"));
  EXPECT_TRUE(Pattern(R"((.*\.)?(to_q|to_k))").matches("blocks.0.to_k"));
  EXPECT_TRUE(Pattern(R"([^.]+\.attn(?P<rest>.*?))").matches("a.attn.qkv"));
  EXPECT_FALSE(Pattern("(?i)MLP").found_in("attn"));
}

// RE2's own mode for bytes does not find the first of these.
TEST(Pattern, NamesAreBytes) {
  if (!patterns_available()) GTEST_SKIP() << "built without RE2";
  EXPECT_TRUE(Pattern("é|éa").found_in("café"));
  EXPECT_TRUE(Pattern("\xff|\xff\x01").found_in("a\xff"));
  EXPECT_TRUE(Pattern("caf..").matches("café")) << "é has two bytes";
  EXPECT_FALSE(Pattern("é").found_in("\xe9"));
  EXPECT_THAT(pattern_refusal("é("), testing::HasSubstr("\"é(\""));
}

TEST(Pattern, ARefusalNamesThePatternAndTheReason) {
  if (!patterns_available()) GTEST_SKIP() << "built without RE2";
  EXPECT_THAT(pattern_refusal("a("), testing::AllOf(testing::HasSubstr("\"a(\""), testing::HasSubstr("a ) is missing")));
  EXPECT_THAT(pattern_refusal("(?!mlp)x"), testing::HasSubstr("looking ahead"));
  EXPECT_THAT(pattern_refusal(R"((a)\1)"), testing::HasSubstr("back references"));
  EXPECT_THAT(pattern_refusal("[z-a]"), testing::HasSubstr("character class"));
  EXPECT_THAT(pattern_refusal("*"), testing::HasSubstr("nothing to repeat"));
  EXPECT_THAT(pattern_refusal("(((a{999}){999}){999})"),
              testing::AnyOf(testing::HasSubstr("memory"), testing::HasSubstr("repet")));
  EXPECT_THAT(pattern_refusal(std::string(5000, 'a')), testing::HasSubstr("5000 bytes"));
}

TEST(Pattern, TakesLinearTime) {
  if (!patterns_available()) GTEST_SKIP() << "built without RE2";
  const std::clock_t began = std::clock();  // of the processor: other programs do not count
  EXPECT_FALSE(Pattern("(a*)*(a*)*b").found_in(std::string(20'000, 'a')));
  EXPECT_FALSE(Pattern("(x+x+)+y").matches(std::string(200'000, 'x')));
  EXPECT_FALSE(Pattern("(a|aa)+$").matches(std::string(200'000, 'a') + "!"));
  EXPECT_LT((std::clock() - began) / CLOCKS_PER_SEC, 10);
}

}  // namespace
}  // namespace flux2
