#include "pipeline/inpaint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace flux2 {
namespace {

using testing::HasSubstr;

std::shared_ptr<const Image> photo(int width, int height, int channels = 3) {
  Image image(width, height, channels);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i * 31 + i / 97);
  return std::make_shared<const Image>(std::move(image));
}

Image box_mask(int width, int height, const Box& box) {
  Image mask(width, height, 1);
  add_box(mask, box);
  return mask;
}

Image made_for(const Inpaint& inpaint) {
  Image made(inpaint.width(), inpaint.height(), 3);
  std::fill(made.pixels.begin(), made.pixels.end(), uint8_t{200});
  return made;
}

// Every pixel outside the grown and feathered mask is the canvas's, inside the hard part it is what was made.
void expect_kept(const Image& canvas, const Image& mask, const InpaintOptions& options, const std::string& what) {
  const Inpaint inpaint(std::make_shared<const Image>(canvas), mask, options);
  EXPECT_EQ(inpaint.width() % 16 + inpaint.height() % 16, 0) << what;
  const Image result = inpaint.finish(made_for(inpaint));
  ASSERT_EQ(result.width, canvas.width) << what;
  ASSERT_EQ(result.height, canvas.height) << what;
  ASSERT_EQ(result.channels, canvas.channels) << what;
  const Image soft = feathered(grown(mask, options.grow), options.feather);
  EXPECT_EQ(inpaint.mask(), soft) << what;
  int wrong = 0;
  for (int y = 0; y < canvas.height; ++y)
    for (int x = 0; x < canvas.width; ++x) {
      const uint8_t *now = result.at(x, y), *before = canvas.at(x, y), m = *soft.at(x, y);
      if (m == 0) wrong += !std::equal(now, now + canvas.channels, before);
      if (m == 255) wrong += now[0] != 200 || now[1] != 200 || now[2] != 200;
    }
  EXPECT_EQ(wrong, 0) << what;
}

TEST(Inpaint, KeepsWhatTheMaskKeeps) {
  for (const auto& [width, height] : {std::pair{320, 256}, {331, 257}, {50, 83}, {1021, 67}})
    for (int channels : {3, 4}) {
      const Image canvas = *photo(width, height, channels);
      Image soft(width, height, 1);
      for (int y = 0; y < height; ++y)
        for (int x = 0; x < width; ++x)
          *soft.at(x, y) = static_cast<uint8_t>(std::clamp(300 - 12 * (std::abs(x - 30) + std::abs(y - 40)), 0, 255));
      Image full(width, height, 1), tiny(width, height, 1);
      invert(full);
      *tiny.at(width - 1, height - 1) = 255;
      for (auto crop : {InpaintOptions::Crop::Auto, InpaintOptions::Crop::Off, InpaintOptions::Crop::On}) {
        const std::string what = fmt::format("{}x{}x{} crop {}", width, height, channels, static_cast<int>(crop));
        expect_kept(canvas, box_mask(width, height, {10, 20, 25, 31}), {.crop = crop}, what + " box");
        expect_kept(canvas, soft, {.crop = crop}, what + " soft");
        expect_kept(canvas, full, {.crop = crop}, what + " full");
        expect_kept(canvas, tiny, {.crop = crop}, what + " tiny");
        expect_kept(canvas, tiny, {.grow = 0, .feather = 0, .crop = crop}, what + " one pixel");
        expect_kept(canvas, box_mask(width, height, {10, 20, 25, 31}), {.crop = crop, .width = 128, .height = 96},
                    what + " resized");
      }
    }
}

TEST(Inpaint, WorksOnASmallRegionOfALargePicture) {
  const Inpaint inpaint(photo(4000, 3000), box_mask(4000, 3000, {1800, 1200, 300, 300}), {});
  EXPECT_EQ(inpaint.width(), 400);  // 300 + 2 · (8 + 8 + 32) = 396
  EXPECT_EQ(inpaint.height(), 400);
  EXPECT_EQ(inpaint.region().x, 1800 - 48 - 2);
  const Canvas canvas = inpaint.canvas(0.7);
  EXPECT_EQ(canvas.strength, 0.7);
  EXPECT_EQ(canvas.picture->width, 400);
  ASSERT_EQ(canvas.mask.size(), 25u * 25u);
  EXPECT_EQ(canvas.mask[0], 0.0f);
  EXPECT_EQ(canvas.mask[12 * 25 + 12], 1.0f);
}

TEST(Inpaint, LargeMasksTakeTheWholePicture) {
  EXPECT_EQ(Inpaint(photo(320, 256), box_mask(320, 256, {0, 0, 200, 200}), {}).region(), (Box{0, 0, 320, 256}));
  const Inpaint odd(photo(331, 257), box_mask(331, 257, {0, 0, 300, 200}), {});
  EXPECT_EQ(odd.region(), (Box{0, 0, 336, 272}));
  const Inpaint huge(photo(4000, 3000), box_mask(4000, 3000, {0, 0, 3900, 2900}), {});
  EXPECT_LE(int64_t{huge.width()} * huge.height(), 4'200'000);
}

TEST(Inpaint, ExtensionsAreMasked) {
  Image canvas = *photo(100, 80), mask(100, 80, 1);
  const Image before = canvas;
  extend(canvas, mask, {16, 0, 30, 5});
  EXPECT_EQ(canvas.width, 146);
  EXPECT_EQ(canvas.height, 85);
  EXPECT_EQ(*mask.at(15, 10), 255);
  EXPECT_EQ(*mask.at(16, 10), 0);
  EXPECT_EQ(*mask.at(116, 79), 255);
  EXPECT_EQ(*mask.at(20, 80), 255);
  EXPECT_EQ(crop(canvas, 16, 0, 100, 80), before);
  EXPECT_TRUE(std::equal(canvas.at(0, 7), canvas.at(0, 7) + 3, before.at(0, 7)));
  expect_kept(canvas, mask, {}, "extended");
}

// The published pipeline: truncated sizes, a threshold, and the four middle pixels of each token.
TEST(Inpaint, DiffusersMode) {
  Image mask(100, 70, 1);
  add_box(mask, {0, 0, 8, 8});  // reaches one of the four middle pixels of the first token
  add_box(mask, {32, 0, 16, 70});
  const Inpaint inpaint(photo(96, 64), crop(mask, 0, 0, 96, 64), {.mode = InpaintOptions::Mode::Diffusers});
  EXPECT_EQ(inpaint.width(), 96);
  EXPECT_EQ(inpaint.height(), 64);
  const std::vector<float> tokens = inpaint.canvas(1.0).mask;
  EXPECT_EQ(tokens[0], 0.25f);
  EXPECT_EQ(tokens[1], 0.0f);
  EXPECT_EQ(tokens[2], 1.0f);
  EXPECT_EQ(inpaint.finish(made_for(inpaint)), made_for(inpaint));
  const Inpaint large(photo(1300, 1100), box_mask(1300, 1100, {0, 0, 9, 9}), {.mode = InpaintOptions::Mode::Diffusers});
  EXPECT_EQ(large.width(), 1104);  // 1113 × 941
  EXPECT_EQ(large.height(), 928);
}

// A made picture that is a little off sits on its canvas again.
TEST(Inpaint, AlignsTheResult) {
  Image canvas(192, 160, 3);
  const auto sample = [](double x, double y, int c) {
    return 128 + 70 * std::sin(0.11 * x + c) + 40 * std::cos(0.13 * y - 0.05 * x);
  };
  for (int y = 0; y < 160; ++y)
    for (int x = 0; x < 192; ++x)
      for (int c = 0; c < 3; ++c) canvas.at(x, y)[c] = static_cast<uint8_t>(sample(x, y, c));
  const Image mask = box_mask(192, 160, {80, 60, 30, 30});
  const auto worst = [&](bool align) {
    const Inpaint inpaint(std::make_shared<const Image>(canvas), mask, {.crop = InpaintOptions::Crop::Off, .align = align});
    Image made(192, 160, 3);
    for (int y = 0; y < 160; ++y)
      for (int x = 0; x < 192; ++x)
        for (int c = 0; c < 3; ++c) made.at(x, y)[c] = static_cast<uint8_t>(0.9 * sample(x - 3, y, c) + 8);
    const Image result = inpaint.finish(made);
    int difference = 0;
    for (size_t i = 0; i < result.pixels.size(); ++i)
      difference = std::max(difference, std::abs(result.pixels[i] - canvas.pixels[i]));
    return difference;
  };
  EXPECT_GT(worst(false), 15);
  EXPECT_LT(worst(true), 6);
}

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Inpaint, RejectsInvalidInputWithOneSentence) {
  EXPECT_THAT(refusal([] { Inpaint(photo(64, 64), Image(64, 64, 1), {}); }), HasSubstr("the mask is empty"));
  EXPECT_THAT(refusal([] { Inpaint(photo(64, 64), Image(64, 65, 1), {}); }), HasSubstr("the mask is 64x65, the image 64x64"));
  for (const char* wrong : {"", "1,2,3", "1,2,3,x", "1,2,3,99999", "-1,2,3,4"})
    EXPECT_THAT(refusal([&] { parse_margins(wrong); }), HasSubstr("is not valid")) << wrong;
}

}  // namespace
}  // namespace flux2
