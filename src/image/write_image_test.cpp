#include "image/write_image.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "image/codecs.h"
#include "image/read_image.h"
#include "image/test_images.h"

namespace flux2 {
namespace {

TEST(WriteImage, PngKeepsEveryChannelCountAndLevel) {
  for (int channels : {1, 3, 4}) {
    const Image image = test_image(37, 21, channels);
    for (int level : {0, 1, 6, 9}) {
      EXPECT_EQ(read_image(encode_png(image, {}, level)), image) << channels << " " << level;
    }
  }
  EXPECT_THROW(encode_png(test_image(4, 4, 3), {}, 10), Error);
}

TEST(WriteImage, PpmKeepsPixelsAndShowsAlphaOverWhite) {
  for (int channels : {1, 3}) {
    EXPECT_EQ(read_image(encode_ppm(test_image(19, 5, channels))), test_image(19, 5, channels));
  }
  EXPECT_EQ(read_image(encode_ppm(test_image(19, 5, 4))), to_rgb(test_image(19, 5, 4)));
}

TEST(WriteImage, JpegStaysCloseAndQualityMatters) {
  for (int channels : {1, 3}) {
    const Image image = test_image(67, 45, channels);
    const auto fine = encode_jpeg(image, {}, 95), coarse = encode_jpeg(image, {}, 40);
    EXPECT_LT(mean_difference(read_image(fine), image), 2.5);
    EXPECT_LT(mean_difference(read_image(coarse), image), 8.0);
    EXPECT_LT(coarse.size(), fine.size());
    EXPECT_EQ(read_image(fine).channels, channels);
  }
  EXPECT_LT(mean_difference(read_image(encode_jpeg(test_image(32, 32, 4))), to_rgb(test_image(32, 32, 4))), 3.0);
  EXPECT_THROW(encode_jpeg(test_image(4, 4, 3), {}, 0), Error);
}

// The frame header: FF C0, length 2, precision 1, height 2, width 2, count 1, then id and sampling of the first
// component.
int first_sampling(const std::vector<std::byte>& jpeg) {
  for (size_t i = 0; i + 11 < jpeg.size(); ++i) {
    if (jpeg[i] == std::byte{0xFF} && jpeg[i + 1] == std::byte{0xC0}) return std::to_integer<int>(jpeg[i + 11]);
  }
  return -1;
}

TEST(WriteImage, JpegHasFullColourAboveQuality90) {
  EXPECT_EQ(first_sampling(encode_jpeg(test_image(32, 32, 3), {}, 91)), 0x11);
  EXPECT_EQ(first_sampling(encode_jpeg(test_image(32, 32, 3), {}, 90)), 0x22);
}

TEST(WriteImage, WebpStaysCloseOrSaysThatItIsMissing) {
  const Image image = test_image(67, 45, 3);
  if (!webp_available()) {
    EXPECT_THROW(encode_image(image, ImageFormat::WebP), Error);
    return;
  }
  EXPECT_LT(mean_difference(read_image(encode_image(image, ImageFormat::WebP)), image), 3.0);
  const Image clear = read_image(encode_image(test_image(20, 20, 4), ImageFormat::WebP));
  EXPECT_EQ(clear.channels, 4);
  EXPECT_THROW(encode_webp(Image(16384, 1, 3), {}, 90), Error);
}

TEST(WriteImage, NamesChooseFormats) {
  EXPECT_EQ(format_from_name("png"), ImageFormat::Png);
  EXPECT_EQ(format_from_name(".JPG"), ImageFormat::Jpeg);
  EXPECT_EQ(format_from_name("a.b/picture.jpeg"), ImageFormat::Jpeg);
  EXPECT_EQ(format_from_name("x.pgm"), ImageFormat::Ppm);
  try {
    format_from_name("x.tiff");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::InvalidArgument);
    EXPECT_NE(std::string(e.what()).find("png, jpg, ppm"), std::string::npos) << e.what();
  }
  EXPECT_THROW(encode_image(test_image(2, 2, 3), ImageFormat::Bmp), Error);
}

TEST(WriteImage, SavesAndReadsFiles) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "flux2_write_image_test";
  const Image image = test_image(9, 9, 3);
  save_image(folder / "new" / "picture.png", encode_png(image));
  EXPECT_EQ(read_image(folder / "new" / "picture.png"), image);
  std::ofstream(folder / "broken.png") << "\x89PNG\r\n\x1a\nrubbish";
  try {
    read_image(folder / "broken.png");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::BadFile);
    EXPECT_NE(std::string(e.what()).find("broken.png"), std::string::npos);
  }
  EXPECT_THROW(read_image(folder / "absent.png"), Error);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace flux2
