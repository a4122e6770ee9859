#include "image/shrink_by_area.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/sha256.h"

namespace flux2 {
namespace {

// The upper bytes of a linear congruential generator, so that a script can make the same image.
Image noise_image(int width, int height, int channels) {
  Image image(width, height, channels);
  auto x = static_cast<uint32_t>(1000 * width + height);
  for (uint8_t& sample : image.pixels) {
    x = x * 1664525u + 1013904223u;
    sample = static_cast<uint8_t>(x >> 24);
  }
  return image;
}

// Hashes of what cv2.resize(…, interpolation=cv2.INTER_AREA) of opencv-python-headless 5.0.0 returned.
struct AreaCase {
  int width, height, to_width, to_height;
  const char* sha256;  // its first 16 digits
};
constexpr AreaCase kFromOpenCv[] = {
    {64, 48, 32, 24, "cc448d1f5b2373c2"},   {66, 90, 33, 45, "93931581849d61f9"},    {60, 60, 20, 20, "32e1db273a01ce5a"},
    {60, 60, 20, 30, "d039c16000939ffe"},   {90, 64, 30, 16, "a24f3cc48ad4af92"},    {50, 40, 50, 20, "808dbfb96c89bded"},
    {50, 40, 25, 40, "b2da516d928f0ab3"},   {7, 5, 1, 1, "808698bcc10b0982"},        {33, 31, 32, 30, "e46976c77e3be5c9"},
    {97, 13, 96, 13, "bbe1f7dc604ab05f"},   {151, 103, 137, 93, "2a8e8cded6bf388c"}, {17, 54, 15, 48, "a8be3a1a76df654d"},
    {146, 9, 122, 8, "7cc352e122583e2a"},   {132, 54, 44, 18, "5efbb3749a0c4b2c"},   {117, 47, 57, 23, "89e560c13efb4ba0"},
    {81, 85, 48, 50, "b963619c69413c25"},   {85, 159, 69, 129, "0fe1d214d0567755"},  {79, 41, 18, 9, "c8f06ebd4f867ec4"},
    {138, 101, 17, 12, "c3e0869872dfb531"}, {155, 79, 143, 73, "9f6d44ac8c8b94c5"},  {49, 84, 15, 26, "5b2f8e3bb92388cb"},
    {158, 10, 41, 3, "97512870627a518d"},   {155, 113, 41, 30, "327c87cd05e4bce4"},  {117, 64, 10, 5, "887eba4848b31f4b"},
    {102, 134, 23, 30, "c9bc6ddb1e6a69ae"}, {89, 49, 79, 44, "e72b5d631bcd06b6"},    {37, 85, 32, 73, "c7bfa097cf2503c6"},
    {115, 105, 88, 80, "f138d3f47eb9d487"}, {80, 22, 46, 13, "be61aa14c8523468"},    {118, 85, 104, 75, "ae263b0d3782ba98"},
    {25, 17, 11, 7, "d07edcf5119f6b63"},    {99, 57, 22, 12, "c87b82eadb673f76"},
};

TEST(ShrinkByArea, EqualsOpenCvByteForByte) {
  for (const AreaCase& c : kFromOpenCv) {
    const Image small = shrink_by_area(noise_image(c.width, c.height, 3), c.to_width, c.to_height);
    EXPECT_EQ(sha256(std::as_bytes(std::span(small.pixels))).substr(0, 16), c.sha256)
        << c.width << "×" << c.height << " to " << c.to_width << "×" << c.to_height;
  }
}

TEST(ShrinkByArea, HalvesRoundUp) {
  Image image(2, 2, 1);
  image.pixels = {0, 1, 0, 1};  // 0.5
  EXPECT_EQ(shrink_by_area(image, 1, 1).pixels, std::vector<uint8_t>{1});
}

TEST(ShrinkByArea, OtherWholeRatiosRoundToEven) {
  Image image(4, 1, 1);
  image.pixels = {0, 1, 0, 1};  // 0.5
  EXPECT_EQ(shrink_by_area(image, 1, 1).pixels, std::vector<uint8_t>{0});
  image.pixels = {1, 2, 1, 2};  // 1.5
  EXPECT_EQ(shrink_by_area(image, 1, 1).pixels, std::vector<uint8_t>{2});
}

TEST(ShrinkByArea, ChannelsDoNotMix) {
  const Image rgb = noise_image(61, 47, 3), small = shrink_by_area(rgb, 23, 19);
  for (size_t c = 0; c < 3; ++c) {
    Image grey(61, 47, 1);
    for (size_t i = 0; i < grey.pixels.size(); ++i) grey.pixels[i] = rgb.pixels[3 * i + c];
    const Image one = shrink_by_area(grey, 23, 19);
    for (size_t i = 0; i < one.pixels.size(); ++i) ASSERT_EQ(one.pixels[i], small.pixels[3 * i + c]) << c << " " << i;
  }
}

TEST(ShrinkByArea, SameSizeChangesNothing) {
  const Image image = noise_image(13, 9, 3);
  EXPECT_EQ(shrink_by_area(image, 13, 9), image);
}

TEST(ShrinkByArea, RefusesToEnlarge) {
  const Image image = noise_image(13, 9, 3);
  EXPECT_THROW(shrink_by_area(image, 14, 9), Error);
  EXPECT_THROW(shrink_by_area(image, 13, 0), Error);
}

}  // namespace
}  // namespace flux2
