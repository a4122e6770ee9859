#include "base/edit_distance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flux2 {
namespace {

TEST(EditDistance, CountsLetters) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("steps", "stpes"), 2u);
}

TEST(EditDistance, RanksWords) {
  EXPECT_THAT(nearest_words("KLIEN", {"dev", "klein", "klein-4b", "x"}, 2), testing::ElementsAre("klein", "dev"));
  EXPECT_THAT(nearest_words("a", {}, 3), testing::IsEmpty());
}

}  // namespace
}  // namespace flux2
