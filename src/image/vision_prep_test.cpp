#include "image/vision_prep.h"

#include <gtest/gtest.h>

#include <utility>

#include "image/test_images.h"

namespace flux2 {
namespace {

TEST(VisionPrep, SidesBecomeMultiplesOfATokensSide) {
  const auto size = [](int width, int height) {
    const Image seen = vision_image(Image(width, height, 3), {});
    return std::pair(seen.width, seen.height);
  };
  EXPECT_EQ(size(1, 1), std::pair(28, 28));
  EXPECT_EQ(size(28, 29), std::pair(28, 56));
  EXPECT_EQ(size(768, 768), std::pair(784, 784));
  EXPECT_EQ(size(1024, 576), std::pair(1036, 588));
  EXPECT_EQ(size(3080, 10), std::pair(1540, 28)) << "scaled down";
  EXPECT_EQ(size(3000, 1), std::pair(1540, 28)) << "a side of less than one pixel";
}

TEST(VisionPrep, AnImageOfTheRightSizeKeepsItsPixels) {
  const Image image = test_image(56, 28, 3);
  EXPECT_EQ(vision_image(image, {}).pixels, image.pixels);
}

TEST(VisionPrep, PatchesFollowEachOtherRowByRow) {
  Image image(4, 4, 3);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i);
  const auto values = vision_patches(image, 2);
  ASSERT_EQ(values.size(), 48u);
  const auto expected = [](int value, double mean, double deviation) { return (value / 255.0 - mean) / deviation; };
  EXPECT_NEAR(values[0], expected(0, 0.48145466, 0.26862954), 1e-6);
  EXPECT_NEAR(values[6], expected(12, 0.48145466, 0.26862954), 1e-6) << "the second row of the first patch";
  EXPECT_NEAR(values[13], expected(7, 0.4578275, 0.26130258), 1e-6) << "green of the second patch";
  EXPECT_NEAR(values[24], expected(24, 0.48145466, 0.26862954), 1e-6) << "the third patch";
}

TEST(VisionPrep, ImagesAreJoinedOnWhite) {
  Image a(2, 4, 3), b(3, 1, 4);
  for (int x = 0; x < 3; ++x) {
    b.at(x, 0)[0] = 50;
    b.at(x, 0)[3] = 0;
  }
  const Image joined = joined_images({a, b});
  EXPECT_EQ(joined.width, 5);
  EXPECT_EQ(joined.height, 4);
  EXPECT_EQ(joined.at(0, 0)[0], 0);
  EXPECT_EQ(joined.at(2, 0)[0], 255);
  EXPECT_EQ(joined.at(2, 1)[0], 50) << "in the middle, alpha ignored";
  EXPECT_EQ(joined.at(2, 2)[0], 255);
  EXPECT_EQ(joined_images({b}).channels, 4);
}

TEST(VisionPrep, TheCapKeepsProportions) {
  const Image small = with_at_most(Image(1920, 1080, 3), 768 * 768);
  EXPECT_EQ(small.width, 1024);
  EXPECT_EQ(small.height, 576);
  EXPECT_EQ(with_at_most(Image(768, 768, 3), 768 * 768).width, 768);
}

}  // namespace
}  // namespace flux2
