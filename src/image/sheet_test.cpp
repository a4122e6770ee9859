#include "image/sheet.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "image/letters.h"
#include "image/test_images.h"

namespace flux2 {
namespace {

Image white(int width, int height) {
  Image image(width, height, 3);
  std::fill(image.pixels.begin(), image.pixels.end(), uint8_t{255});
  return image;
}

// Rows of a picture as text: # is dark.
std::string drawn(const Image& image) {
  std::string text;
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) text += image.at(x, y)[1] < 128 ? '#' : '.';
    text += '\n';
  }
  return text;
}

TEST(Letters, MatchTheFont) {
  Image image = white(12, 9);
  draw_text(image, 0, 0, "Rg");
  EXPECT_EQ(drawn(image),
            "####........\n"
            "#...#.......\n"
            "#...#..####.\n"
            "####..#...#.\n"
            "#.#...#...#.\n"
            "#..#..#...#.\n"
            "#...#..####.\n"
            "..........#.\n"
            ".......###..\n");
}

TEST(Letters, AreAllDifferent) {
  std::vector<std::string> seen;
  for (char c = ' '; c <= '~'; ++c) {
    Image image = white(6, 9);
    draw_text(image, 0, 0, std::string(1, c));
    seen.push_back(drawn(image));
    EXPECT_EQ(std::count(seen.begin(), seen.end(), seen.back()), 1) << c;
  }
  Image other = white(12, 9), box = white(12, 9);
  draw_text(other, 0, 0, "é漢");
  draw_text(box, 0, 0, "ää");
  EXPECT_EQ(other, box);  // what we have no letter for: one box a character
  EXPECT_EQ(std::count(seen.begin(), seen.end(), drawn(other)), 0);
}

TEST(Letters, ScaleAndStayInside) {
  Image small = white(6, 9), large = white(18, 27);
  draw_text(small, 0, 0, "k");
  draw_text(large, 0, 0, "k", 3);
  for (int y = 0; y < 27; ++y)
    for (int x = 0; x < 18; ++x) EXPECT_EQ(*large.at(x, y), *small.at(x / 3, y / 3));
  draw_text(small, -300, -4, std::string(200, 'W'), 2);
  draw_text(small, 4, 7, "W", 5);
}

TEST(Letters, LinesBreakAtSpaces) {
  EXPECT_EQ(wrapped_text("a red fox in snow", 9), (std::vector<std::string>{"a red fox", "in snow"}));
  EXPECT_EQ(wrapped_text("abcdefgh", 3), (std::vector<std::string>{"abc", "def", "gh"}));
  EXPECT_EQ(wrapped_text("äöü äöü", 3), (std::vector<std::string>{"äöü", "äöü"}));
  EXPECT_TRUE(wrapped_text("", 5).empty());
}

TEST(Sheet, PlacesImagesAndLabels) {
  std::vector<SheetBlock> blocks;
  for (int z = 0; z < 2; ++z) {
    SheetBlock block{z == 0 ? "seed 1" : "seed 2", {"steps 4", "steps 8", "steps 16"}, {"cfg 1", "cfg 4"}, {}};
    for (unsigned k = 0; k < 6; ++k) block.cells.push_back(test_image(64, 48, 3, 10 * static_cast<unsigned>(z) + k));
    blocks.push_back(std::move(block));
  }
  const Sheet sheet = make_sheet(blocks, 512);
  ASSERT_EQ(sheet.places.size(), 12u);
  for (size_t k = 0; k < 12; ++k) {
    const SheetPlace& p = sheet.places[k];
    EXPECT_EQ(crop(sheet.image, p.left, p.top, p.width, p.height), blocks[k / 6].cells[k % 6]) << k;
  }
  // Rows and columns are in line, blocks below each other, labels above and left of their pictures.
  EXPECT_EQ(sheet.places[0].left, sheet.places[3].left);
  EXPECT_EQ(sheet.places[0].top, sheet.places[2].top);
  EXPECT_GT(sheet.places[6].top, sheet.places[3].top + 48);
  const auto shows = [&](const std::string& label, int left, int top, int right, int bottom) {
    Image text = white(static_cast<int>(label.size()) * kLetterWidth, 9);
    draw_text(text, 0, 0, label);
    for (int y = top; y + text.height <= bottom; ++y)
      for (int x = left; x + text.width <= right; ++x)
        if (crop(sheet.image, x, y, text.width, text.height) == text) return true;
    return false;
  };
  EXPECT_TRUE(shows("steps 8", sheet.places[1].left, 0, sheet.places[1].left + 64, sheet.places[1].top));
  EXPECT_TRUE(shows("cfg 4", 0, sheet.places[3].top, sheet.places[3].left, sheet.places[3].top + 48));
  EXPECT_TRUE(shows("seed 2", 0, sheet.places[5].top + 48, sheet.image.width, sheet.places[6].top));
}

TEST(Sheet, LargePicturesAreReduced) {
  const SheetBlock block{"", {"", ""}, {""}, {test_image(400, 200, 3), Image{}}};
  const Sheet small = make_sheet({&block, 1}, 100);
  EXPECT_EQ(small.places[0].width, 100);
  EXPECT_EQ(small.places[0].height, 50);
  EXPECT_EQ(small.places[1].width, 0);
  const Sheet tight = make_sheet({&block, 1}, 400, 300);
  EXPECT_LE(tight.image.width, 300);
  EXPECT_GT(tight.places[0].width, 100);
  const SheetBlock wrong{"", {"a"}, {"b"}, {}};
  EXPECT_THROW(make_sheet({&wrong, 1}, 100), Error);
}

}  // namespace
}  // namespace flux2
