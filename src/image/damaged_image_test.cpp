// Files cut short or with bytes changed give an Error or a picture, never anything else.
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "image/read_image.h"
#include "image/test_images.h"
#include "image/write_image.h"

namespace flux2 {
namespace {

class DamagedImage : public testing::TestWithParam<ImageFormat> {
 protected:
  std::vector<std::byte> file(int channels) const {
    const ImageMetadata metadata{
        .text = {{"parameters", "text"}}, .exif_comment = "comment", .xmp = "<x/>", .software = "s"};
    return encode_image(test_image(61, 43, channels), GetParam(), metadata);
  }
};

TEST_P(DamagedImage, TruncationIsAnError) {
  for (int channels : {1, 3, 4}) {
    const auto whole = file(channels);
    EXPECT_NO_THROW(read_image(whole));
    for (size_t i = 0; i < 16; ++i) {
      const std::span part = std::span(whole).first(whole.size() * i / 16);
      EXPECT_THROW(read_image(part), Error) << i << "/16";
      if (i == 0) continue;
      EXPECT_NO_THROW(read_metadata(part)) << i << "/16";
    }
  }
}

TEST_P(DamagedImage, ChangedBytesGiveOnlyErrors) {
  std::mt19937 random(7);
  const auto whole = file(3);
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    auto damaged = whole;
    const size_t range =
        round % 2 != 0 ? damaged.size() : std::min<size_t>(damaged.size(), 200);  // headers matter most
    for (int i = 0; i < 1 + round % 4; ++i) damaged[random() % range] = static_cast<std::byte>(random());
    try {
      read_image(damaged, {.max_pixels = 1 << 20});
    } catch (const Error& e) {
      ++refused;
      EXPECT_NE(std::string(e.what()), "");
    }
    try {
      read_metadata(damaged);
    } catch (const Error&) {
    }
  }
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Formats, DamagedImage, testing::ValuesIn(available_formats()),
                         [](const auto& each) { return std::string(name_of(each.param)); });

}  // namespace
}  // namespace flux2
