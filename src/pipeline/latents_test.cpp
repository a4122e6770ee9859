#include "pipeline/latents.h"

#include <gtest/gtest.h>

namespace flux2 {
namespace {

TEST(Latents, TokensAndPlanes) {
  const std::vector<float> planes = {1, 2, 3, 10, 20, 30};  // two channels of three positions
  const auto tokens = to_tokens(planes, 2);
  EXPECT_EQ(tokens, (std::vector<float>{1, 10, 2, 20, 3, 30}));
  EXPECT_EQ(to_planes(tokens, 2), planes);
}

TEST(Latents, Positions) {
  const auto text = text_positions(3);
  EXPECT_EQ(text[2].l, 2);
  EXPECT_EQ(text[2].t + text[2].h + text[2].w, 0);
  const auto picture = picture_positions(2, 3, 10);
  ASSERT_EQ(picture.size(), 6u);
  EXPECT_EQ(picture[4].h, 1);
  EXPECT_EQ(picture[4].w, 1);
  EXPECT_EQ(picture[4].t, 10);
}

}  // namespace
}  // namespace flux2
