#include "image/pixels.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"

namespace flux2 {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

TEST(Pixels, FollowsBothRoundings) {
  // 0 → 127.5; 0.5/127.5 above −1 → 0.5, a tie for Nearest; 1.5/127.5 → 1.5, the other tie.
  const std::vector<float> planes = {-1, 1, 0, -2, 3, 0.25f};
  EXPECT_EQ(to_rgb8(planes, 2, 1, Rounding::Trunc).pixels, (std::vector<uint8_t>{0, 127, 255, 255, 0, 159}));
  EXPECT_EQ(to_rgb8(planes, 2, 1, Rounding::Nearest).pixels, (std::vector<uint8_t>{0, 128, 255, 255, 0, 159}));
  EXPECT_THROW(to_rgb8(planes, 2, 2, Rounding::Trunc), Error);
}

TEST(Pixels, NanAndInfinityStayInRange) {
  const std::vector<float> planes = {kNan, kInf, -kInf};
  for (Rounding r : {Rounding::Trunc, Rounding::Nearest}) {
    EXPECT_EQ(to_rgb8(planes, 1, 1, r).pixels, (std::vector<uint8_t>{0, 255, 0}));
  }
}

TEST(Pixels, EveryByteSurvivesTheRoundTrip) {
  Image image(256, 1, 3);
  for (int x = 0; x < 256; ++x) {
    image.at(x, 0)[0] = static_cast<uint8_t>(x);
    image.at(x, 0)[1] = static_cast<uint8_t>(255 - x);
    image.at(x, 0)[2] = 7;
  }
  const std::vector<float> planes = from_rgb8(image);
  EXPECT_EQ(planes[0], -1.0f);
  EXPECT_EQ(planes[255], 1.0f);
  EXPECT_EQ(planes[51], 2.0f * 0.2f - 1.0f);
  EXPECT_EQ(planes[256], 1.0f);
  EXPECT_EQ(to_rgb8(planes, 1, 256, Rounding::Nearest), image);
}

TEST(Pixels, RecognisesFailedPictures) {
  EXPECT_FALSE(has_nan(std::vector<float>{0, kInf}));
  EXPECT_TRUE(has_nan(std::vector<float>{0, kNan}));
  std::vector<float> planes(12, -1.0f);
  planes[3] = kNan, planes[4] = -7.0f, planes[5] = -0.9999f;
  EXPECT_TRUE(would_be_black(planes));
  planes[11] = -0.99f;
  EXPECT_FALSE(would_be_black(planes));
}

}  // namespace
}  // namespace flux2
