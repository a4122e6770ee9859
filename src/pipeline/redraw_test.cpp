#include "pipeline/redraw.h"

#include <gtest/gtest.h>

#include <cmath>

namespace flux2 {
namespace {

Image flat(int width, int height, uint8_t level) {
  Image image(width, height, 3);
  std::fill(image.pixels.begin(), image.pixels.end(), level);
  return image;
}

TEST(Redraw, TilesCoverTheImageAndOverlap) {
  for (int width : {64, 65, 100, 300}) {
    const auto corners = tile_corners(width, 80, 64, 64, 16);
    int end = 0;
    for (const TileCorner& c : corners) {
      if (c.top != 0) continue;
      EXPECT_LE(c.left, std::max(0, end - 16)) << width;
      end = c.left + 64;
    }
    EXPECT_EQ(end, width);
  }
  EXPECT_EQ(tile_corners(64, 64, 64, 64, 16).size(), 1u);
}

// Two tiles of different colours have no edge between them.
TEST(Redraw, TilesFadeIntoEachOther) {
  TileBlender blender(112, 64, 16);
  blender.add(flat(64, 64, 100), {0, 0});
  blender.add(flat(64, 64, 116), {48, 0});
  const Image image = blender.finish();
  EXPECT_EQ(*image.at(0, 5), 100);
  EXPECT_EQ(*image.at(111, 5), 116);
  for (int x = 1; x < 112; ++x) EXPECT_LE(std::abs(*image.at(x, 5) - *image.at(x - 1, 5)), 1) << x;
}

TEST(Redraw, TilesOfOneImageGiveItBack) {
  Image image(150, 90, 3);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i * 37);
  TileBlender blender(150, 90, 16);
  for (const TileCorner& c : tile_corners(150, 90, 64, 64, 16)) blender.add(crop(image, c.left, c.top, 64, 64), c);
  EXPECT_EQ(blender.finish(), image);
}

// Flat areas get the colour of the other image; details stay.
TEST(Redraw, ColoursComeFromTheOriginal) {
  Image drawn = flat(128, 96, 140);
  *drawn.at(60, 50) = 240;
  const Image result = with_colours_of(drawn, flat(128, 96, 90), 8);
  EXPECT_EQ(*result.at(5, 5), 90);
  EXPECT_EQ(*result.at(127, 95), 90);
  EXPECT_NEAR(*result.at(60, 50), 190, 2);
  const Image large = padded_to(flat(5, 7, 9), 16, 4);
  EXPECT_EQ(large, flat(16, 7, 9));
}

}  // namespace
}  // namespace flux2
