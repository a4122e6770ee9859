#include "image/image_header.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "image/codecs.h"
#include "image/read_image.h"
#include "image/test_images.h"
#include "image/write_image.h"

namespace flux2 {
namespace {

std::string header_refusal(const std::string& bytes, const ImageLimits& limits = {}) {
  try {
    read_image_header(bytes_of(bytes), limits);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::BadFile);
    return e.what();
  }
  return {};
}

TEST(ImageHeader, AgreesWithTheDecoders) {
  for (const auto& [width, height] : {std::pair{1, 1}, {37, 5}, {300, 17}, {16, 1025}}) {
    for (const ImageFormat format : available_formats()) {
      for (const int channels : {1, 3, 4}) {
        const auto bytes = encode_image(test_image(width, height, channels), format);
        const ImageHeader header = read_image_header(bytes);
        EXPECT_EQ(header.format, format);
        EXPECT_EQ(header.width, width) << name_of(format);
        EXPECT_EQ(header.height, height) << name_of(format);
      }
    }
  }
}

TEST(ImageHeader, ReadsWebpWithMetadata) {
  if (!webp_available()) GTEST_SKIP() << "built without WebP";
  const auto bytes = encode_webp(test_image(33, 70, 4), {.software = "x"}, 80);  // in the extended layout
  EXPECT_EQ(read_image_header(bytes).width, 33);
  EXPECT_EQ(read_image_header(bytes).height, 70);
}

TEST(ImageHeader, ReadsLosslessWebp) {
  // 40 × 21 pixels: width − 1 and height − 1 in 14 bits each behind the signature 0x2f.
  const std::string bytes("RIFF\x16\0\0\0WEBPVP8L\x0a\0\0\0\x2f\x27\x00\x05\x00\0\0\0\0\0", 30);
  EXPECT_EQ(read_image_header(bytes_of(bytes)).width, 40);
  EXPECT_EQ(read_image_header(bytes_of(bytes)).height, 21);
}

TEST(ImageHeader, ReadsBmpFromBelowAndFromAbove) {
  std::string bytes("BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x07\0\0\0\x09\0\0\0\x01\0\x18\0", 30);
  EXPECT_EQ(read_image_header(bytes_of(bytes)).width, 7);
  EXPECT_EQ(read_image_header(bytes_of(bytes)).height, 9);
  bytes.replace(22, 4, "\xf7\xff\xff\xff");  // −9: rows from the top
  EXPECT_EQ(read_image_header(bytes_of(bytes)).height, 9);
}

TEST(ImageHeader, ReadsPnmWithComments) {
  const std::string bytes = "P5 # a comment\n# another\n12\t34 255\n";
  EXPECT_EQ(read_image_header(bytes_of(bytes)).width, 12);
  EXPECT_EQ(read_image_header(bytes_of(bytes)).height, 34);
}

TEST(ImageHeader, TurnsTheSizeAsExifAsks) {
  std::string jpeg;
  for (const std::byte b : encode_jpeg(test_image(40, 20, 3))) jpeg += static_cast<char>(b);
  // One entry: tag 0x0112, a 16-bit number, 6.
  const std::string exif("Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0", 32);
  const size_t length = exif.size() + 2;
  jpeg.insert(2, std::string("\xff\xe1", 2) + static_cast<char>(length >> 8) + static_cast<char>(length & 255) + exif);
  const ImageHeader header = read_image_header(bytes_of(jpeg));
  const Image image = read_image(bytes_of(jpeg));
  EXPECT_EQ(header.width, 20);
  EXPECT_EQ(header.height, 40);
  EXPECT_EQ(image.width, 20);
}

TEST(ImageHeader, RefusesWhatIsNoImageOrTooLarge) {
  EXPECT_EQ(header_refusal(""), "the file is empty");
  EXPECT_EQ(header_refusal("<svg>"), "not an image in a known format");
  EXPECT_NE(header_refusal("\x89PNG\r\n\x1a\n"), "");
  EXPECT_NE(header_refusal(std::string("\xff\xd8\xff\xd9", 4)), "");
  EXPECT_NE(header_refusal("\xff\xd8\xff"), "");
  EXPECT_NE(header_refusal("P6"), "");
  EXPECT_NE(header_refusal("P6 0 5 255\n"), "");
  EXPECT_NE(header_refusal("P6 99999999999999999999 5 255\n"), "");
  // 60000 × 60000 pixels in a few bytes.
  EXPECT_NE(header_refusal("P6 60000 60000 255\n"), "");
  EXPECT_NE(header_refusal("P6 101 10 255\n", {.side = 100}), "");
  EXPECT_EQ(header_refusal("P6 100 10 255\n", {.side = 100}), "");
}

TEST(ImageHeader, SurvivesEveryTruncation) {
  for (const ImageFormat format : available_formats()) {
    const auto bytes = encode_image(test_image(20, 10, 3), format);
    for (size_t n = 0; n < std::min<size_t>(bytes.size(), 700); ++n) {
      try {
        const ImageHeader header = read_image_header(std::span(bytes).first(n));
        EXPECT_EQ(header.width, 20) << name_of(format) << " cut to " << n;
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::BadFile);
      }
    }
  }
}

}  // namespace
}  // namespace flux2
