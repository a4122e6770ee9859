// Files cut short or with bytes changed give an Error that blames the file or a picture of a possible size, never anything else.
#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "base/error.h"
#include "image/read_image.h"
#include "image/test_images.h"
#include "image/write_image.h"

namespace flux2 {
namespace {

// The code of the Error that f throws; nothing when it throws none.
template <class F>
std::optional<ErrorCode> code_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.code();
  }
  return std::nullopt;
}

class DamagedImage : public testing::TestWithParam<ImageFormat> {
 protected:
  std::vector<std::byte> file(int channels) const {
    const ImageMetadata metadata{.text = {{"parameters", "text"}}, .exif_comment = "comment", .xmp = "<x/>", .software = "s"};
    return encode_image(test_image(61, 43, channels), GetParam(), metadata);
  }
};

TEST_P(DamagedImage, TruncationIsAnError) {
  for (int channels : {1, 3, 4}) {
    const auto whole = file(channels);
    const Image image = read_image(whole);
    EXPECT_EQ(image.width, 61);
    EXPECT_EQ(image.height, 43);
    const ImageMetadata metadata = read_metadata(whole);
    for (size_t i = 0; i < 16; ++i) {
      const std::span part = std::span(whole).first(whole.size() * i / 16);
      EXPECT_EQ(code_of([&] { read_image(part); }), ErrorCode::BadFile) << i << "/16";
      if (i == 0) continue;
      // What is still there is read as before, and nothing is made up.
      const ImageMetadata rest = read_metadata(part);
      for (const auto& entry : rest.text) EXPECT_EQ(entry.second, "text") << i << "/16";
      for (const auto& [part_text, whole_text] :
           {std::pair(rest.exif_comment, metadata.exif_comment), std::pair(rest.xmp, metadata.xmp)})
        EXPECT_TRUE(part_text.empty() || part_text == whole_text) << i << "/16: " << part_text;
    }
  }
}

TEST_P(DamagedImage, ChangedBytesGiveOnlyErrors) {
  std::mt19937 random(7);
  const auto whole = file(3);
  int refused = 0, same_size = 0;
  for (int round = 0; round < 400; ++round) {
    auto damaged = whole;
    const size_t range = round % 2 != 0 ? damaged.size() : std::min<size_t>(damaged.size(), 200);  // headers matter most
    for (int i = 0; i < 1 + round % 4; ++i) damaged[random() % range] = static_cast<std::byte>(random());
    Image image;
    const auto code = code_of([&] { image = read_image(damaged, {.limits = {.pixels = 1 << 20}}); });
    if (code) {
      ++refused;
      EXPECT_EQ(*code, ErrorCode::BadFile) << "round " << round;
    } else {
      EXPECT_GT(image.width, 0);
      EXPECT_LE(int64_t{image.width} * image.height, 1 << 20);
      EXPECT_EQ(image.pixels.size(), image.row_bytes() * static_cast<size_t>(image.height)) << "round " << round;
      same_size += image.width == 61 && image.height == 43;
    }
    // Damage beyond the first bytes leaves a picture file, so its metadata can be asked for.
    const auto metadata_code = code_of([&] { read_metadata(damaged); });
    EXPECT_TRUE(!metadata_code || *metadata_code == ErrorCode::BadFile) << "round " << round;
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(same_size, 0);
}

INSTANTIATE_TEST_SUITE_P(Formats, DamagedImage, testing::ValuesIn(available_formats()),
                         [](const auto& each) { return std::string(name_of(each.param)); });

}  // namespace
}  // namespace flux2
