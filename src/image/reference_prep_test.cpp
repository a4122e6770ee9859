#include "image/reference_prep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "base/error.h"
#include "image/read_image.h"
#include "image/resize.h"
#include "image/test_images.h"
#include "image/write_image.h"

namespace flux2 {
namespace {

using Size = std::pair<int, int>;

Size prepared(int width, int height, size_t count, ReferenceRules rules = {}) {
  const Image image = prepare_reference(Image(width, height, 1), rules, count);
  EXPECT_EQ(image.channels, 3);
  return {image.width, image.height};
}

// The sizes of the reference code.
TEST(ReferencePrep, SizesAloneAndTogether) {
  EXPECT_EQ(prepared(1920, 1080, 1), Size(1920, 1072));
  EXPECT_EQ(prepared(1920, 1080, 2), Size(1360, 768));
  EXPECT_EQ(prepared(4032, 3024, 1), Size(2336, 1744));
  EXPECT_EQ(prepared(4032, 3024, 2), Size(1168, 880));
  EXPECT_EQ(prepared(1000, 1500, 3), Size(832, 1248));
  EXPECT_EQ(prepared(64, 64, 1), Size(64, 64));
}

TEST(ReferencePrep, DiffusersLimitsASingleOneToo) {
  EXPECT_EQ(prepared(1920, 1080, 1, {.prep = ReferencePrep::Diffusers}), Size(1360, 768));
  EXPECT_EQ(prepared(1920, 1080, 1, {.prep = ReferencePrep::Bfl}), Size(1920, 1072));
}

TEST(ReferencePrep, LimitsCanBeReplacedOrLeftOut) {
  EXPECT_EQ(prepared(1024, 1024, 1, {.max_pixels = 512 * 512}), Size(512, 512));
  EXPECT_EQ(prepared(1920, 1088, 4, {.resize = false}), Size(1920, 1088));
}

TEST(ReferencePrep, IsTheSameAsConvertingTheWholeImageFirst) {
  for (const int channels : {1, 3, 4})
    for (const ReferencePrep prep : {ReferencePrep::Ours, ReferencePrep::Bfl}) {
      const Image image = test_image(200, 150, channels);
      const AlphaRule rule = prep == ReferencePrep::Ours ? AlphaRule::OverWhite : AlphaRule::Drop;
      EXPECT_EQ(resize_to_rgb(image, rule, 90, 70), resize(to_rgb(image, rule), 90, 70)) << channels;
      EXPECT_EQ(resize_to_rgb(image, rule, 200, 70), resize(to_rgb(image, rule), 200, 70)) << channels;
      EXPECT_EQ(prepare_reference(image, {.prep = prep}, 1), to_rgb(centre_crop(image, 192, 144), rule)) << channels;
    }
}

uint64_t memory_line(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name)) return std::stoull(line.substr(name.size())) * 1024;
  return 0;
}

// The image itself has to be in memory once, the scaled one besides.
TEST(ReferencePrep, NeedsLittleMoreMemoryThanTheImage) {
  constexpr int kSide = 5000;
  const uint64_t image_bytes = uint64_t{kSide} * kSide * 3;
  const std::vector<std::byte> png = [] {
    Image plain(kSide, kSide, 3);
    return encode_png(plain, {}, 1);
  }();
  std::ofstream("/proc/self/clear_refs") << 5;  // the highest mark begins anew
  const uint64_t before = memory_line("VmRSS:");
  if (memory_line("VmHWM:") > before + (20 << 20)) GTEST_SKIP() << "this system does not reset the mark";
  EXPECT_EQ(prepare_reference(read_image(png), {}, 1).width, 2016);
  EXPECT_LT(memory_line("VmHWM:") - before, image_bytes * 2);
}

TEST(ReferencePrep, CropsToTheCentre) {
  Image image(67, 66, 3);
  for (int y = 0; y < 66; ++y)
    for (int x = 0; x < 67; ++x) image.at(x, y)[0] = static_cast<uint8_t>(x), image.at(x, y)[1] = static_cast<uint8_t>(y);
  const Image middle = prepare_reference(image, {}, 1);
  EXPECT_EQ(middle.at(0, 0)[0], 1);
  EXPECT_EQ(middle.at(0, 0)[1], 1);
  EXPECT_EQ(middle.at(63, 63)[0], 64);
}

TEST(ReferencePrep, TransparencyIsWhiteOrIgnored) {
  Image image(64, 64, 4);  // black and transparent
  EXPECT_EQ(prepare_reference(image, {}, 1).at(5, 5)[1], 255);
  EXPECT_EQ(prepare_reference(image, {.prep = ReferencePrep::Bfl}, 1).at(5, 5)[1], 0);
  EXPECT_EQ(prepare_reference(image, {.prep = ReferencePrep::Diffusers}, 1).at(5, 5)[1], 0);
}

std::string refusal(int width, int height, ReferenceRules rules = {}) {
  try {
    prepare_reference(Image(width, height, 1), rules, 1);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(ReferencePrep, RejectsSmallAndElongatedImages) {
  EXPECT_THAT(refusal(63, 200), testing::HasSubstr("63x200 is too small: both sides need at least 64"));
  EXPECT_THAT(refusal(640, 79), testing::HasSubstr("640x79 is too elongated: the ratio of its sides may be at most 8:1"));
  EXPECT_EQ(refusal(640, 80), "");
  EXPECT_THAT(refusal(5000, 5000, {.resize = false}), testing::HasSubstr("too large"));
  EXPECT_THROW(reference_prep_named("theirs"), Error);
}

TEST(ReferencePrep, FilesAreReadAsTheNamedProgramReadsThem) {
  const auto rules = [](ReferencePrep prep) { return ReferenceRules{.prep = prep}; };
  EXPECT_TRUE(rules(ReferencePrep::Ours).turns_upright() && rules(ReferencePrep::Ours).converts_colours());
  EXPECT_TRUE(rules(ReferencePrep::Diffusers).turns_upright() && !rules(ReferencePrep::Diffusers).converts_colours());
  EXPECT_FALSE(rules(ReferencePrep::Bfl).turns_upright() || rules(ReferencePrep::Bfl).converts_colours());
}

}  // namespace
}  // namespace flux2
