#include "text/pretokenize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flux2 {
namespace {

using testing::ElementsAre;

TEST(Pretokenize, WordsTakeOneCharacterInFront) {
  EXPECT_THAT(pretokenize("a cat,\tdog"), ElementsAre("a", " cat", ",", "\tdog"));
  EXPECT_THAT(pretokenize("(foo_bar)"), ElementsAre("(foo", "_bar", ")"));
  EXPECT_THAT(pretokenize("🐱katze"), ElementsAre("🐱katze"));
  EXPECT_THAT(pretokenize("\u0301e\u0301"), ElementsAre("\u0301e", "\u0301"));
}

TEST(Pretokenize, ContractionsInAnyCase) {
  EXPECT_THAT(pretokenize("don't WE'LL I'Ve o'st"), ElementsAre("don", "'t", " WE", "'LL", " I", "'Ve", " o", "'s", "t"));
  EXPECT_THAT(pretokenize("it'\u017F l'l"), ElementsAre("it", "'\u017F", " l", "'l"));  // the long s folds to s
  EXPECT_THAT(pretokenize("'r"), ElementsAre("'r"));
  EXPECT_THAT(pretokenize("'"), ElementsAre("'"));
}

TEST(Pretokenize, DigitsAreSplitOneByOne) { EXPECT_THAT(pretokenize("x12 ½٣"), ElementsAre("x", "1", "2", " ", "½", "٣")); }

TEST(Pretokenize, SymbolsTakeASpaceBeforeAndNewlinesBehind) {
  EXPECT_THAT(pretokenize("a !!\r\n\nb"), ElementsAre("a", " !!\r\n\n", "b"));
  EXPECT_THAT(pretokenize("\t!"), ElementsAre("\t", "!"));
}

TEST(Pretokenize, WhiteSpace) {
  EXPECT_THAT(pretokenize("a  b   c"), ElementsAre("a", " ", " b", "  ", " c"));
  EXPECT_THAT(pretokenize("   "), ElementsAre("   "));
  EXPECT_THAT(pretokenize(" \n \n  x"), ElementsAre(" \n \n", " ", " x"));
  EXPECT_THAT(pretokenize("\nx"), ElementsAre("\n", "x"));
  EXPECT_THAT(pretokenize("a \u3000 1"), ElementsAre("a", " \u3000", " ", "1"));
  EXPECT_THAT(pretokenize(""), ElementsAre());
}

}  // namespace
}  // namespace flux2
