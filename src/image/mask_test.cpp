#include "image/mask.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace flux2 {
namespace {

Image empty(int width, int height) { return Image(width, height, 1); }

// By its definition, slowly.
Image grown_slowly(const Image& mask, int radius) {
  Image result = mask;
  for (int y = 0; y < mask.height; ++y)
    for (int x = 0; x < mask.width; ++x)
      for (int v = std::max(0, y - radius); v <= std::min(mask.height - 1, y + radius); ++v)
        for (int u = std::max(0, x - radius); u <= std::min(mask.width - 1, x + radius); ++u)
          if ((u - x) * (u - x) + (v - y) * (v - y) <= radius * radius)
            *result.at(x, y) = std::max(*result.at(x, y), *mask.at(u, v));
  return result;
}

TEST(Mask, GrowsByADisc) {
  Image mask = empty(37, 29);
  add_box(mask, {5, 7, 9, 3});
  *mask.at(30, 20) = 100;
  *mask.at(31, 20) = 100;
  *mask.at(32, 20) = 180;
  *mask.at(0, 28) = 255;
  for (int radius : {0, 1, 2, 5, 8}) EXPECT_EQ(grown(mask, radius), grown_slowly(mask, radius)) << radius;
}

TEST(Mask, ScalingKeepsHardEdgesHardAndSoftOnesSoft) {
  Image hard = empty(40, 30);
  add_box(hard, {10, 10, 15, 9});
  const Image larger = scaled_mask(hard, 100, 75), smaller = scaled_mask(hard, 20, 15);
  for (const Image* scaled : {&larger, &smaller})
    for (const uint8_t v : scaled->pixels) ASSERT_TRUE(v == 0 || v == 255) << int{v};
  EXPECT_EQ(bounds(scaled_mask(hard, 80, 60)), (Box{20, 20, 30, 18}));
  EXPECT_EQ(bounds(larger), (Box{25, 25, 38, 23}));
  Image soft = empty(40, 30);
  for (int x = 0; x < 40; ++x)
    for (int y = 0; y < 30; ++y) *soft.at(x, y) = static_cast<uint8_t>(6 * x);
  const Image ramp = scaled_mask(soft, 80, 60);
  EXPECT_NEAR(*ramp.at(40, 30), 118, 3);
}

TEST(Mask, FeatherReachesItsRadiusAndNoFurther) {
  for (int radius : {1, 2, 5, 8}) {
    Image mask = empty(80, 20);
    add_box(mask, {40, 0, 40, 20});
    const Image soft = feathered(mask, radius);
    EXPECT_EQ(*soft.at(40 - radius - 1, 10), 0);
    EXPECT_GT(*soft.at(40 - radius, 10), 0) << radius;
    EXPECT_EQ(*soft.at(40 + radius, 10), 255);
    for (int x = 1; x < 80; ++x) EXPECT_GE(*soft.at(x, 10), *soft.at(x - 1, 10));
    EXPECT_EQ(*soft.at(79, 0), 255) << "the border is no edge";
  }
  Image full = empty(9, 9);
  invert(full);
  EXPECT_EQ(feathered(full, 8), full);
}

TEST(Mask, IsReadFromLuminanceOrAlpha) {
  Image grey(2, 1, 1);
  grey.pixels = {0, 200};
  EXPECT_EQ(mask_of_picture(grey), grey);
  Image colour(2, 1, 3);
  colour.pixels = {255, 0, 0, 255, 255, 255};
  EXPECT_EQ(mask_of_picture(colour).pixels, (std::vector<uint8_t>{76, 255}));
  Image alpha(2, 1, 4);
  alpha.pixels = {255, 255, 255, 255, 9, 9, 9, 55};
  EXPECT_EQ(mask_of_picture(alpha).pixels, (std::vector<uint8_t>{0, 200}));
  alpha.pixels[7] = 255;  // opaque all over: its colours count
  EXPECT_EQ(mask_of_picture(alpha).pixels, (std::vector<uint8_t>{255, 9}));
}

TEST(Mask, BoundsAreTight) {
  Image mask = empty(20, 10);
  EXPECT_EQ(bounds(mask), std::nullopt);
  *mask.at(3, 4) = 1;
  EXPECT_EQ(bounds(mask), (Box{3, 4, 1, 1}));
  *mask.at(19, 9) = 255;
  EXPECT_EQ(bounds(mask), (Box{3, 4, 17, 6}));
}

TEST(Mask, BlendKeepsUnmaskedBytes) {
  Image kept(256, 1, 4), made(256, 1, 3), mask(256, 1, 1);
  for (int i = 0; i < 256; ++i) {
    const auto v = static_cast<uint8_t>(i);
    kept.at(i, 0)[0] = v, kept.at(i, 0)[3] = 10;
    made.at(i, 0)[0] = static_cast<uint8_t>(255 - v);
    *mask.at(i, 0) = i < 100 ? 0 : i < 200 ? 255 : 128;
  }
  const Image before = kept;
  blend(kept, made, mask);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(std::equal(kept.at(i, 0), kept.at(i, 0) + 4, before.at(i, 0)));
  for (int i = 100; i < 200; ++i) {
    EXPECT_EQ(kept.at(i, 0)[0], 255 - i);
    EXPECT_EQ(kept.at(i, 0)[3], 255);
  }
  EXPECT_EQ(kept.at(255, 0)[0], 127);  // 255 · 127/255 + 0
}

TEST(Mask, BoxesAreReadAndLimited) {
  EXPECT_EQ(parse_box("1,-2,30,4"), (Box{1, -2, 30, 4}));
  for (const char* wrong : {"", "1,2,3", "1,2,3,4,5", "1,2,0,4", "a,2,3,4", "1,2,3,99999999"})
    EXPECT_THROW(parse_box(wrong), Error) << wrong;
  Image mask = empty(10, 10);
  EXPECT_THROW(add_box(mask, {10, 0, 5, 5}), Error);
  add_box(mask, {-3, -3, 5, 5});
  EXPECT_EQ(bounds(mask), (Box{0, 0, 2, 2}));
}

TEST(Mask, CropsRepeatTheBorder) {
  Image picture(2, 2, 1);
  picture.pixels = {1, 2, 3, 4};
  EXPECT_EQ(crop_extended(picture, {-1, 0, 4, 3}).pixels, (std::vector<uint8_t>{1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4}));
}

}  // namespace
}  // namespace flux2
