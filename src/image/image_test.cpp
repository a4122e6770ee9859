#include "image/image.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

Image grey(int width, int height, std::vector<uint8_t> values) {
  Image image(width, height, 1);
  image.pixels = std::move(values);
  return image;
}

TEST(Image, RefusesSizesBeyondTheLimits) {
  EXPECT_THROW(Image(0, 4, 3), Error);
  EXPECT_THROW(Image(65501, 1, 1), Error);
  EXPECT_THROW(Image(65500, 65500, 1), Error);
  EXPECT_THROW(Image(2, 2, 2), Error);
  EXPECT_NO_THROW(check_image_size(16384, 16384));
  EXPECT_THROW(check_image_size(10, 10, {.pixels = 99}), Error);
}

TEST(Image, CompositesOnWhiteOrDropsAlpha) {
  Image image(3, 1, 4);
  image.pixels = {10, 20, 30, 255, 10, 20, 30, 0, 0, 100, 200, 128};
  EXPECT_EQ(to_rgb(image).pixels, (std::vector<uint8_t>{10, 20, 30, 255, 255, 255, 127, 177, 227}));
  EXPECT_EQ(to_rgb(image, AlphaRule::Drop).pixels, (std::vector<uint8_t>{10, 20, 30, 10, 20, 30, 0, 100, 200}));
  EXPECT_EQ(to_rgb(grey(2, 1, {7, 9})).pixels, (std::vector<uint8_t>{7, 7, 7, 9, 9, 9}));
}

TEST(Image, CropsAtTheCentre) {
  const Image image = grey(5, 3, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14});
  EXPECT_EQ(centre_crop(image, 2, 2).pixels, (std::vector<uint8_t>{1, 2, 6, 7}));
  EXPECT_EQ(crop(image, 3, 1, 2, 2).pixels, (std::vector<uint8_t>{8, 9, 13, 14}));
  EXPECT_THROW(crop(image, 4, 0, 2, 1), Error);
  EXPECT_THROW(centre_crop(image, 6, 1), Error);
}

// The stored picture whose upright form is  1 2 3 / 4 5 6, for every EXIF orientation.
TEST(Image, RotatesEveryOrientationUpright) {
  const Image upright = grey(3, 2, {1, 2, 3, 4, 5, 6});
  const Image stored[] = {grey(3, 2, {1, 2, 3, 4, 5, 6}), grey(3, 2, {3, 2, 1, 6, 5, 4}), grey(3, 2, {6, 5, 4, 3, 2, 1}),
                          grey(3, 2, {4, 5, 6, 1, 2, 3}), grey(2, 3, {1, 4, 2, 5, 3, 6}), grey(2, 3, {3, 6, 2, 5, 1, 4}),
                          grey(2, 3, {6, 3, 5, 2, 4, 1}), grey(2, 3, {4, 1, 5, 2, 6, 3})};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    EXPECT_EQ(apply_orientation(stored[orientation - 1], orientation), upright) << orientation;
  }
  EXPECT_EQ(apply_orientation(upright, 0), upright);
  EXPECT_EQ(apply_orientation(upright, 9), upright);
}

}  // namespace
}  // namespace flux2
