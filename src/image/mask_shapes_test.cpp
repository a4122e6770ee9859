#include "image/mask_shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace flux2 {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Image empty(int width, int height) { return Image(width, height, 1); }
int64_t selected(const Image& mask) { return std::count(mask.pixels.begin(), mask.pixels.end(), uint8_t{255}); }

void paint(Image& picture, const Box& box, std::array<uint8_t, 3> colour) {
  for (int y = box.y; y < box.y + box.height; ++y)
    for (int x = box.x; x < box.x + box.width; ++x) std::copy(colour.begin(), colour.end(), picture.at(x, y));
}

TEST(MaskShapes, AnEllipseFillsItsBox) {
  Image mask = empty(100, 80);
  add_ellipse(mask, {10, 20, 60, 40});
  EXPECT_EQ(bounds(mask), (Box{10, 20, 60, 40}));
  EXPECT_NEAR(static_cast<double>(selected(mask)), 3.14159265 * 30 * 20, 30);
  EXPECT_EQ(*mask.at(10, 20), 0) << "corners are outside";
  add_ellipse(mask, {-20, -20, 40, 40});
  EXPECT_EQ(*mask.at(0, 0), 255) << "clipped to the image";
  EXPECT_THAT([&] { add_ellipse(mask, {200, 0, 10, 10}); }, ThrowsMessage<Error>(HasSubstr("outside the image of 100x80")));
}

TEST(MaskShapes, APolygonHasTheAreaOfItsCorners) {
  Image mask = empty(100, 80);
  add_polygon(mask, parse_polygon("10,10 50,10 50,30 10,30"));
  Image box = empty(100, 80);
  add_box(box, {10, 10, 40, 20});
  EXPECT_EQ(mask, box);
  Image triangle = empty(100, 80);
  add_polygon(triangle, parse_polygon("0,0; 80,0; 0,80"));
  EXPECT_NEAR(static_cast<double>(selected(triangle)), 3200, 80);
  // A star drawn in one line: its middle is not inside by the even-odd rule.
  Image star = empty(100, 100);
  add_polygon(star, parse_polygon("50,5 80,95 5,38 95,38 20,95"));
  EXPECT_EQ(*star.at(50, 55), 0);
  EXPECT_EQ(*star.at(50, 20), 255);
  EXPECT_THAT([] { parse_polygon("1,1 2,2"); }, ThrowsMessage<Error>(HasSubstr("at least three")));
  EXPECT_THAT([] { parse_polygon("1,1 2,2 3"); }, ThrowsMessage<Error>(HasSubstr("not a corner")));
  EXPECT_THAT([&] { add_polygon(mask, parse_polygon("200,200 300,200 300,300")); }, ThrowsMessage<Error>(HasSubstr("polygon")));
}

TEST(MaskShapes, TheWandSelectsWhatIsConnected) {
  Image picture(60, 40, 3);
  paint(picture, {0, 0, 60, 40}, {200, 200, 200});
  paint(picture, {5, 5, 10, 10}, {250, 10, 10});
  paint(picture, {15, 9, 20, 2}, {240, 20, 10});    // a bridge, slightly different
  paint(picture, {35, 5, 10, 10}, {250, 10, 10});   // reached over the bridge
  paint(picture, {45, 15, 10, 10}, {250, 10, 10});  // touches at a corner only
  Image mask = empty(60, 40);
  add_wand(mask, picture, parse_wand("7,7"));
  EXPECT_EQ(selected(mask), 10 * 10 + 20 * 2 + 10 * 10);
  EXPECT_EQ(*mask.at(50, 20), 0);
  Image strict = empty(60, 40);
  add_wand(strict, picture, parse_wand("7,7:0"));
  EXPECT_EQ(selected(strict), 100);
  Image colour = empty(60, 40);
  add_colour(colour, picture, parse_colour_choice("#fa0a0a:0"));
  EXPECT_EQ(selected(colour), 300) << "everywhere";
  EXPECT_THAT([&] { add_wand(mask, picture, parse_wand("60,1")); }, ThrowsMessage<Error>(HasSubstr("outside the image")));
  EXPECT_THAT([] { parse_wand("5"); }, ThrowsMessage<Error>(HasSubstr("x,y:tolerance")));
  EXPECT_THAT([] { parse_wand("5,5:256"); }, ThrowsMessage<Error>(HasSubstr("x,y:tolerance")));
  EXPECT_THAT([] { parse_colour_choice("red"); }, ThrowsMessage<Error>(HasSubstr("#rrggbb")));
  EXPECT_THAT([&] { add_colour(mask, picture, parse_colour_choice("00ff00:3")); }, ThrowsMessage<Error>(HasSubstr("#00ff00")));
}

// Against the definition, on an image with islands, holes and one-pixel passages.
TEST(MaskShapes, TheWandAgreesWithASlowFill) {
  Image picture(37, 29, 3);
  uint32_t state = 12345;
  for (uint8_t& value : picture.pixels) value = (state = state * 1664525u + 1013904223u) >> 30 ? 100 : 0;
  for (const Pixel start : {Pixel{0, 0}, Pixel{18, 14}, Pixel{36, 28}, Pixel{3, 20}}) {
    Image slow = empty(37, 29);
    *slow.at(start.x, start.y) = 255;
    for (bool changed = true; changed;) {
      changed = false;
      for (int y = 0; y < 29; ++y)
        for (int x = 0; x < 37; ++x) {
          if (*slow.at(x, y) != 0 || !std::equal(picture.at(x, y), picture.at(x, y) + 3, picture.at(start.x, start.y))) continue;
          const bool touches = (x > 0 && *slow.at(x - 1, y)) || (x < 36 && *slow.at(x + 1, y)) || (y > 0 && *slow.at(x, y - 1)) ||
                               (y < 28 && *slow.at(x, y + 1));
          if (touches) *slow.at(x, y) = 255, changed = true;
        }
    }
    Image mask = empty(37, 29);
    add_wand(mask, picture, {.at = start, .tolerance = 0});
    EXPECT_EQ(mask, slow) << start.x << "," << start.y;
  }
}

TEST(MaskShapes, ADifferenceIsWhatSomebodyChanged) {
  Image before(40, 30, 3), after(40, 30, 3);
  for (uint8_t& value : after.pixels) value = 5;  // as a lossy format would
  paint(after, {10, 10, 5, 5}, {90, 0, 0});
  Image mask = empty(40, 30);
  add_difference(mask, before, after);
  EXPECT_EQ(bounds(mask), (Box{10, 10, 5, 5}));
  EXPECT_THAT([&] { add_difference(mask, before, before); }, ThrowsMessage<Error>(HasSubstr("do not differ")));
  EXPECT_THAT([&] { add_difference(mask, before, Image(20, 30, 3)); }, ThrowsMessage<Error>(HasSubstr("same size")));
}

TEST(MaskShapes, PointsAreWrittenAsPlacesInTheImage) {
  EXPECT_EQ(parse_mask_point("3,4.5").y, 4.5);
  EXPECT_TRUE(parse_mask_point("3,4").include);
  EXPECT_TRUE(parse_mask_point("3,4:1").include);
  EXPECT_FALSE(parse_mask_point("3,4:0").include);
  for (const char* bad : {"", "3", "3,", ",4", "3,4,5", "-1,4", "3,4:2", "3,nan"})
    EXPECT_THROW(parse_mask_point(bad), Error) << bad;
}

TEST(MaskShapes, TheOverlayShowsTheMask) {
  Image picture(4, 1, 3), mask(4, 1, 1);
  *mask.at(1, 0) = 255;
  const Image shown = with_overlay(picture, mask);
  EXPECT_EQ(shown.at(0, 0)[0], 0);
  EXPECT_EQ(shown.at(1, 0)[0], 127);
  EXPECT_EQ(shown.at(1, 0)[1], 20);
}

}  // namespace
}  // namespace flux2
