#include "cli/shell/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

using testing::ElementsAre;
using testing::Pair;

TEST(ShellWords, QuotesKeepWordsTogether) {
  EXPECT_THAT(shell_words("  a 'b c'  \"d \\\" e\" f\\ g \"\" "), ElementsAre("a", "b c", "d \" e", "f g", ""));
  EXPECT_THAT(shell_words("x='a \"b\"'"), ElementsAre("x=a \"b\""));
  EXPECT_THAT(shell_words("\"c:\\new\""), ElementsAre("c:\\new"));
  EXPECT_TRUE(shell_words(" \t").empty());
  EXPECT_THROW(shell_words("it's"), Error);
  for (const char* text : {"plain", "two words", "a \"quote\"", "back\\slash", "", "it's", "ünï 漢"})
    EXPECT_THAT(shell_words(shell_quoted(text)), ElementsAre(text));
}

TEST(ShellWords, DistinguishesPairsFromPrompts) {
  EXPECT_THAT(key_values("steps=8 seed=3").value(), ElementsAre(Pair("steps", "8"), Pair("seed", "3")));
  EXPECT_THAT(key_values("prompt=\"a fox = red\" negative=").value(),
              ElementsAre(Pair("prompt", "a fox = red"), Pair("negative", "")));
  for (const char* prompt : {"a fox", "E=mc2 on a blackboard", "x=1 is written on the wall", "it's a=b", "= equals", ""})
    EXPECT_FALSE(key_values(prompt)) << prompt;
  EXPECT_THROW(key_values("prompt='never closed"), Error);
}

TEST(ShellWords, NumbersOfPictures) {
  EXPECT_EQ(picture_number("$12"), 12);
  EXPECT_EQ(picture_number("$"), 0);
  for (const char* other : {"12", "$x", "$1x", "$0", "$-1", "$99999999999"}) EXPECT_FALSE(picture_number(other)) << other;
}

}  // namespace
}  // namespace flux2
