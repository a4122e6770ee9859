#include "image/resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/error.h"
#include "base/json.h"
#include "tests/support/paths.h"

namespace flux2 {
namespace {

constexpr std::pair<const char*, ResizeFilter> kFilters[] = {
    {"bilinear", ResizeFilter::Bilinear}, {"bicubic", ResizeFilter::Bicubic}, {"lanczos", ResizeFilter::Lanczos}};

// The U8 arrays [H, W, 3] of the golden file, read with as little of the safetensors format as that needs.
struct Golden {
  std::string file = read_text_file(test::golden_folder() / "resize.safetensors");
  uint64_t header_size = 0;
  Json header;

  Golden() {
    std::memcpy(&header_size, file.data(), 8);
    header = Json::parse(file.substr(8, header_size));
  }

  Image image(const std::string& name) const {
    const Json& entry = header.at(name);
    Image image(entry["shape"][1], entry["shape"][0], 3);
    std::memcpy(image.pixels.data(), file.data() + 8 + header_size + entry["data_offsets"][0].get<size_t>(), image.pixels.size());
    return image;
  }
};

TEST(Resize, EqualsPillowByteForByte) {
  const Golden golden;
  for (const char* k : {"0", "1", "2", "3"}) {
    const Image in = golden.image(std::string(k) + ".in");
    for (auto [name, filter] : kFilters) {
      const Image expected = golden.image(fmt::format("{}.{}", k, name));
      EXPECT_EQ(resize(in, expected.width, expected.height, filter), expected) << k << " " << name;
    }
  }
}

TEST(Resize, ChannelsDoNotMix) {
  const Image rgb = Golden().image("2.in");
  const Image expected = resize(rgb, 33, 90);
  Image grey(rgb.width, rgb.height, 1), opaque(rgb.width, rgb.height, 4);
  for (size_t i = 0; i < grey.pixels.size(); ++i) {
    grey.pixels[i] = rgb.pixels[3 * i + 1];
    std::memcpy(&opaque.pixels[4 * i], &rgb.pixels[3 * i], 3);
    opaque.pixels[4 * i + 3] = 255;
  }
  const Image small_grey = resize(grey, 33, 90), small_opaque = resize(opaque, 33, 90);
  EXPECT_EQ(to_rgb(small_opaque), expected);
  for (size_t i = 0; i < small_grey.pixels.size(); ++i) ASSERT_EQ(small_grey.pixels[i], expected.pixels[3 * i + 1]);
}

// The expected values are Pillow's. The green of the transparent half does not show.
TEST(Resize, InvisibleColourDoesNotBleed) {
  Image image(4, 1, 4);
  image.pixels = {200, 100, 50, 255, 200, 100, 50, 255, 0, 255, 0, 0, 0, 255, 0, 0};
  EXPECT_EQ(resize(image, 2, 1, ResizeFilter::Bilinear).pixels, (std::vector<uint8_t>{199, 100, 50, 219, 205, 99, 49, 36}));
}

TEST(Resize, KeepsFlatColourAndSize) {
  Image image(19, 7, 1);
  std::fill(image.pixels.begin(), image.pixels.end(), 93);
  for (auto [name, filter] : kFilters) {
    for (auto [w, h] : {std::pair{1, 1}, {200, 3}, {5, 100}}) {
      const Image out = resize(image, w, h, filter);
      EXPECT_EQ(out.pixels, std::vector<uint8_t>(static_cast<size_t>(w * h), 93)) << name;
    }
  }
  EXPECT_EQ(resize(image, 19, 7), image);
  EXPECT_THROW(resize(image, 0, 7), Error);
}

TEST(Resize, TheMiddleIsThatOfTheWhole) {
  const Image in = Golden().image("2.in");
  for (auto [name, filter] : kFilters)
    for (auto [w, h, side] : {std::tuple{97, 64, 64}, {64, 201, 64}, {in.width, in.height, 20}, {31, 17, 16}, {8, 40, 16}}) {
      const Image expected = centre_crop(resize(in, w, h, filter), std::min(w, side), std::min(h, side));
      EXPECT_EQ(resize_middle_to_rgb(in, AlphaRule::Drop, {.width = w, .height = h, .side = side}, filter), expected) << name;
    }
  // The whole would be wider than any image.
  Image line(1000, 1, 1);
  for (int x = 0; x < 1000; ++x) *line.at(x, 0) = static_cast<uint8_t>(x / 4);
  const Image middle =
      resize_middle_to_rgb(line, AlphaRule::Drop, {.width = 224'000, .height = 224, .side = 224}, ResizeFilter::Bicubic);
  EXPECT_EQ(middle.width, 224);
  EXPECT_EQ(middle.height, 224);
  for (const uint8_t sample : middle.pixels) ASSERT_NEAR(sample, 125, 1);
}

TEST(Cover, CropsToTheCentre) {
  Image image(40, 20, 1);
  for (int y = 0; y < 20; ++y)
    for (int x = 0; x < 40; ++x) *image.at(x, y) = x < 20 ? 0 : 255;
  const Image square = cover(image, 64, 64);  // 128 × 64, then its middle
  EXPECT_EQ(square.width, 64);
  EXPECT_EQ(square.height, 64);
  EXPECT_EQ(*square.at(10, 30), 0);
  EXPECT_EQ(*square.at(54, 30), 255);
  // A few pixels too many are cut, not resampled.
  EXPECT_EQ(cover(image, 32, 16), centre_crop(image, 32, 16));
}

}  // namespace
}  // namespace flux2
