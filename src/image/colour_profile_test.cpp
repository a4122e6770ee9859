#include "image/colour_profile.h"

#include <gtest/gtest.h>
#include <lcms2.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "image/codecs.h"
#include "image/read_image.h"
#include "image/test_images.h"
#include "image/write_image.h"

namespace flux2 {
namespace {

using namespace std::string_literals;
using Pixels = std::vector<uint8_t>;

constexpr double kGamma = 2.19921875;  // of Adobe RGB (1998)

std::string saved(cmsHPROFILE profile) {
  cmsUInt32Number size = 0;
  cmsSaveProfileToMem(profile, nullptr, &size);
  std::string bytes(size, '\0');
  EXPECT_TRUE(cmsSaveProfileToMem(profile, bytes.data(), &size));
  cmsCloseProfile(profile);
  return bytes;
}

std::string adobe_like_profile() {
  const cmsCIExyY white = {0.3127, 0.3290, 1};
  const cmsCIExyYTRIPLE primaries = {{0.64, 0.33, 1}, {0.21, 0.71, 1}, {0.15, 0.06, 1}};
  cmsToneCurve* curve = cmsBuildGamma(nullptr, kGamma);
  cmsToneCurve* curves[3] = {curve, curve, curve};
  std::string bytes = saved(cmsCreateRGBProfile(&white, &primaries, curves));
  cmsFreeToneCurve(curve);
  return bytes;
}

std::string grey_profile(double gamma) {
  cmsToneCurve* curve = cmsBuildGamma(nullptr, gamma);
  std::string bytes = saved(cmsCreateGrayProfile(cmsD50_xyY(), curve));
  cmsFreeToneCurve(curve);
  return bytes;
}

// Adobe RGB to sRGB by their definitions. Both have the white of D65 and the same red and blue.
std::array<int, 3> by_definition(const uint8_t* adobe) {
  std::array<double, 3> v;
  for (size_t c = 0; c < 3; ++c) v[c] = std::pow(adobe[c] / 255.0, kGamma);
  const std::array<double, 3> linear = {1.3983557440 * v[0] - 0.3983557440 * v[1], v[1],
                                        1.0429289893 * v[2] - 0.0429289893 * v[1]};
  std::array<int, 3> srgb;
  for (size_t c = 0; c < 3; ++c) {
    const double x = std::clamp(linear[c], 0.0, 1.0);
    srgb[c] = static_cast<int>(std::lround(255 * (x <= 0.0031308 ? 12.92 * x : 1.055 * std::pow(x, 1 / 2.4) - 0.055)));
  }
  return srgb;
}

void expect_converted(const Image& stored, const Image& read) {
  ASSERT_EQ(read.width, stored.width);
  ASSERT_EQ(read.height, stored.height);
  ASSERT_EQ(read.channels, stored.channels);
  int worst = 0, moved = 0;
  for (int y = 0; y < read.height; ++y)
    for (int x = 0; x < read.width; ++x) {
      const auto expected = by_definition(stored.at(x, y));
      for (size_t c = 0; c < 3; ++c) {
        worst = std::max(worst, std::abs(read.at(x, y)[c] - expected[c]));
        moved += read.at(x, y)[c] != stored.at(x, y)[c];
      }
      for (int c = 3; c < read.channels; ++c) ASSERT_EQ(read.at(x, y)[c], stored.at(x, y)[c]);
    }
  EXPECT_LE(worst, 1);
  EXPECT_GT(moved, read.width * read.height);
}

std::string text_of(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

std::string big_endian(uint32_t value) {
  std::string digits;
  for (int shift : {24, 16, 8, 0}) digits += static_cast<char>(value >> shift & 255);
  return digits;
}

std::string png_with(const Image& image, const std::string& profile) {
  uLongf size = compressBound(profile.size());
  std::string compressed(size, '\0');
  compress(reinterpret_cast<Bytef*>(compressed.data()), &size, reinterpret_cast<const Bytef*>(profile.data()), profile.size());
  const std::string chunk = "iCCPname\0\0"s + compressed.substr(0, size);
  const auto sum = crc32_z(0, reinterpret_cast<const Bytef*>(chunk.data()), chunk.size());
  std::string file = text_of(encode_png(image));
  file.insert(8 + 25, big_endian(static_cast<uint32_t>(chunk.size() - 4)) + chunk + big_endian(static_cast<uint32_t>(sum)));
  return file;  // after the signature and IHDR
}

std::string icc_segment(int number, int count, const std::string& part) {
  const std::string data = "ICC_PROFILE\0"s + static_cast<char>(number) + static_cast<char>(count) + part;
  return "\xff\xe2"s + big_endian(static_cast<uint32_t>(data.size() + 2)).substr(2) + data;
}

std::string jpeg_with(const Image& image, const std::string& segments) {
  std::string file = text_of(encode_jpeg(image, {}, 95));
  file.insert(2, segments);
  return file;
}

struct Warnings {
  std::vector<std::string> texts;
  Log log() {
    return Log([this](LogLevel, const std::string& text) { texts.push_back(text); });
  }
};

// What Pillow 13's ImageCms.profileToProfile gives for the same profile; the definition gives it too.
TEST(ColourProfile, AgreesWithPillow) {
  Image image(9, 1, 3);
  image.pixels = {0,   0,  0,  255, 255, 255, 128, 128, 128, 200, 100, 50, 50, 200,
                  100, 10, 20, 230, 0,   255, 0,   255, 0,   0,   90,  91, 92};
  EXPECT_EQ(convert_to_srgb(image, bytes_of(adobe_like_profile())), ProfileUse::Converted);
  EXPECT_EQ(image.pixels, (Pixels{0,  0, 0,  255, 255, 255, 129, 129, 129, 227, 100, 42, 0, 201,
                                  92, 0, 12, 235, 0,   255, 0,   255, 0,   0,   89,  91, 92}));

  Image grey(6, 1, 1);
  grey.pixels = {0, 10, 64, 128, 200, 255};
  EXPECT_EQ(convert_to_srgb(grey, bytes_of(grey_profile(1.8))), ProfileUse::Converted);
  const Pixels expected = {0, 10, 81, 146, 210, 255};
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(grey.pixels[i], expected[i], 1) << i;
}

TEST(ColourProfile, PngIsConvertedWhileReading) {
  for (int channels : {3, 4}) {
    const Image image = test_image(40, 30, channels);
    const std::string file = png_with(image, adobe_like_profile());
    expect_converted(image, read_image(bytes_of(file)));
    EXPECT_EQ(read_image(bytes_of(file), {.to_srgb = false}), image);
  }
}

TEST(ColourProfile, AGreyPngWithAlphaMayHaveAGreyProfile) {
  Image image(2, 1, 4);
  image.pixels = {64, 64, 64, 7, 200, 200, 200, 8};
  const Image read = read_image(bytes_of(png_with(image, grey_profile(1.8))));
  EXPECT_EQ(read.at(0, 0)[3], 7);
  EXPECT_NEAR(read.at(0, 0)[1], 81, 1);
  EXPECT_NEAR(read.at(1, 0)[0], 210, 1);
}

TEST(ColourProfile, JpegMayHoldItInPartsInAnyOrder) {
  const std::string profile = adobe_like_profile();
  const Image image = test_image(40, 30, 3);
  const std::string file = jpeg_with(image, icc_segment(2, 2, profile.substr(300)) + icc_segment(1, 2, profile.substr(0, 300)));
  expect_converted(read_image(bytes_of(file), {.to_srgb = false}), read_image(bytes_of(file)));
  const std::string half = jpeg_with(image, icc_segment(2, 2, profile.substr(300)));
  EXPECT_EQ(read_image(bytes_of(half)), read_image(bytes_of(half), {.to_srgb = false}));
}

TEST(ColourProfile, WebpIsConvertedWhileReading) {
  if (!webp_available()) GTEST_SKIP() << "built without WebP";
  std::string profile = adobe_like_profile();
  std::string file = text_of(encode_webp(test_image(40, 30, 3), {.exif_comment = "makes the layout extended"}, 95));
  ASSERT_EQ(file.substr(12, 4), "VP8X");
  file[20] = static_cast<char>(file[20] | 0x20);
  const auto little_endian = [](uint32_t value) {
    const std::string digits = big_endian(value);
    return std::string(digits.rbegin(), digits.rend());
  };
  const std::string size = little_endian(static_cast<uint32_t>(profile.size()));
  if (profile.size() % 2 != 0) profile += '\0';
  file.insert(30, "ICCP" + size + profile);
  file.replace(4, 4, little_endian(static_cast<uint32_t>(file.size() - 8)));
  expect_converted(read_image(bytes_of(file), {.to_srgb = false}), read_image(bytes_of(file)));
}

TEST(ColourProfile, SrgbChangesNothing) {
  const Image image = test_image(20, 20, 3);
  Warnings warnings;
  EXPECT_EQ(read_image(bytes_of(png_with(image, saved(cmsCreate_sRGBProfile()))), {.log = warnings.log()}), image);
  EXPECT_TRUE(warnings.texts.empty());
}

TEST(ColourProfile, UnusableProfileIsIgnoredWithOneWarning) {
  const Image image = test_image(20, 20, 3);
  const std::string profile = adobe_like_profile();
  for (const std::string& bad : {profile.substr(0, 200), "no profile"s, saved(cmsCreateLab4Profile(nullptr))}) {
    Warnings warnings;
    EXPECT_EQ(read_image(bytes_of(png_with(image, bad)), {.log = warnings.log()}), image);
    EXPECT_EQ(warnings.texts.size(), 1u);
  }
}

TEST(ColourProfile, DamagedProfilesAreNotErrors) {
  const Image image = test_image(12, 9, 3);
  const std::string profile = adobe_like_profile();
  unsigned state = 1;
  int unused = 0;
  for (int round = 0; round < 300; ++round) {
    std::string damaged = profile;
    for (int i = 0; i < 3; ++i) {
      state = state * 1664525u + 1013904223u;
      damaged[(state >> 8) % damaged.size()] = static_cast<char>(state >> 24);
    }
    Image read = image;
    unused += convert_to_srgb(read, bytes_of(damaged)) == ProfileUse::Unsupported;
    EXPECT_EQ(read.pixels.size(), image.pixels.size());
  }
  EXPECT_GT(unused, 0);
  EXPECT_LT(unused, 300);
}

}  // namespace
}  // namespace flux2
