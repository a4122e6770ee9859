#include "image/sixel.h"

#include <gtest/gtest.h>

#include <array>
#include <map>

#include "image/palette.h"
#include "image/test_images.h"

namespace flux2 {
namespace {

// Draws a sixel sequence as a terminal would. Cells that were never drawn stay −1 in `drawn`.
struct SixelScreen {
  int width = 0, height = 0;
  std::map<int, std::array<int, 3>> palette;  // percent
  std::vector<int> drawn;

  explicit SixelScreen(const std::string& stream) : text_(stream) {
    EXPECT_TRUE(stream.starts_with("\x1bP"));
    EXPECT_TRUE(stream.ends_with("\x1b\\"));
    at_ = stream.find('q') + 1;
    int x = 0, top = 0, colour = 0;
    while (text_[at_] != '\x1b') {
      const char c = text_[at_++];
      if (c == '"') {
        const auto raster = numbers();
        width = raster.at(2), height = raster.at(3);
        drawn.assign(static_cast<size_t>(width * height), -1);
      } else if (c == '#') {
        const auto values = numbers();
        colour = values[0];
        if (values.size() == 5) palette[colour] = {values[2], values[3], values[4]};
      } else if (c == '!') {
        const int count = numbers()[0];
        draw(text_[at_++], x, top, count, colour);
      } else if (c == '$') {
        x = 0;
      } else if (c == '-') {
        x = 0, top += 6;
      } else {
        draw(c, x, top, 1, colour);
      }
    }
  }

 private:
  std::vector<int> numbers() {
    std::vector<int> values;
    for (;; ++at_) {
      size_t used = 0;
      values.push_back(std::stoi(text_.substr(at_, 8), &used));
      at_ += used;
      if (text_[at_] != ';') return values;
    }
  }

  void draw(char sixel, int& x, int top, int count, int colour) {
    ASSERT_GE(sixel, '?');
    ASSERT_LE(sixel, '~');
    for (; count > 0; --count, ++x) {
      for (int row = 0; row < 6; ++row) {
        if (((sixel - '?') >> row & 1) == 0) continue;
        ASSERT_LT(x, width);
        ASSERT_LT(top + row, height);
        int& cell = drawn[static_cast<size_t>((top + row) * width + x)];
        ASSERT_EQ(cell, -1) << "drawn twice";
        cell = colour;
      }
    }
  }

  std::string text_;
  size_t at_ = 0;
};

TEST(Sixel, EveryPixelIsDrawnOnceInItsColour) {
  const Image image = test_image(53, 20, 3);
  const SixelScreen screen(encode_sixel(image));
  ASSERT_EQ(screen.width, 53);
  ASSERT_EQ(screen.height, 20);
  EXPECT_LE(screen.palette.size(), 256u);
  double difference = 0;
  for (size_t i = 0; i < screen.drawn.size(); ++i) {
    ASSERT_GE(screen.drawn[i], 0) << "pixel " << i << " was not drawn";
    for (size_t c = 0; c < 3; ++c) {
      difference += std::abs(screen.palette.at(screen.drawn[i])[c] * 2.55 - image.pixels[3 * i + c]);
    }
  }
  EXPECT_LT(difference / static_cast<double>(image.pixels.size()), 8.0);
}

TEST(Palette, FewColoursAreKeptExactly) {
  Image image(4, 2, 3);
  const std::array<uint8_t, 3> colours[] = {{255, 0, 0}, {0, 128, 64}, {10, 20, 230}};
  for (int i = 0; i < 8; ++i) std::copy_n(colours[i % 3].data(), 3, &image.pixels[static_cast<size_t>(3 * i)]);
  const PaletteImage reduced = reduce_colours(image);
  EXPECT_EQ(reduced.colours.size(), 3u);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(reduced.colours[reduced.indices[i]], colours[i % 3]);
}

TEST(Palette, DitheringKeepsTheMean) {
  Image ramp(256, 32, 3);
  for (int y = 0; y < ramp.height; ++y) {
    for (int x = 0; x < ramp.width; ++x) std::fill_n(ramp.at(x, y), 3, static_cast<uint8_t>(x));
  }
  const PaletteImage reduced = reduce_colours(ramp, 4);
  EXPECT_EQ(reduced.colours.size(), 4u);
  for (int x : {64, 100, 150, 190}) {  // the mean around a column, not the nearest of four colours
    double sum = 0;
    for (int y = 0; y < ramp.height; ++y) {
      for (int dx = -8; dx < 8; ++dx) sum += reduced.colours[reduced.indices[static_cast<size_t>(y * 256 + x + dx)]][0];
    }
    EXPECT_NEAR(sum / (16.0 * ramp.height), x, 6) << x;
  }
}

}  // namespace
}  // namespace flux2
