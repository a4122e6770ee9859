#include "image/read_image.h"

#include <gtest/gtest.h>
#include <png.h>
#include <zlib.h>

#include "base/base64.h"
#include "base/error.h"
#include "image/codecs.h"
#include "image/exif.h"
#include "image/test_images.h"
#include "image/webp_container.h"
#include "image/write_image.h"

namespace flux2 {
namespace {

using namespace std::string_literals;
using Pixels = std::vector<uint8_t>;

Image read_text(const std::string& text) { return read_image(bytes_of(text)); }

TEST(ReadImage, PpmKinds) {
  EXPECT_EQ(read_text("P2 # grey\n2 # width\n1\n15\n0 15").pixels, (Pixels{0, 255}));
  EXPECT_EQ(read_text("P3\n1 1 255\n1 2 3\n").pixels, (Pixels{1, 2, 3}));
  EXPECT_EQ(read_text("P5\n3 1\n100\n\0\x32\x64"s).pixels, (Pixels{0, 128, 255}));
  EXPECT_EQ(read_text("P6 1 1 65535\n\x80\x00\x00\xff\xff\xff"s).pixels, (Pixels{128, 1, 255}));
  for (const std::string& bad : {"P6 1 1 255\n\x01\x02"s, "P3 1 1 255\n1 2"s, "P5 1 1 0\n\x01"s, "P5 1 1 65536\n\x01\x01"s,
                                 "P2 1 1 7\n8"s, "P5 0 1 255\n"s, "P5 -1 1 255\n"s, "P5 99999999999 1 255\n"s, "P6"s, "P6 #"s}) {
    EXPECT_THROW(read_text(bad), Error) << bad;
  }
}

std::string le(uint32_t value, int size) {
  std::string digits;
  for (int i = 0; i < size; ++i) digits += static_cast<char>(i < 4 ? value >> (8 * i) & 255 : 0);
  return digits;
}

struct Bmp {
  int width, height;
  uint32_t bits, compression = 0;
  std::string before_pixels, pixels;  // masks or palette, then rows

  std::string file() const {
    return "BM" + le(0, 8) + le(54 + static_cast<uint32_t>(before_pixels.size()), 4) + le(40, 4) +
           le(static_cast<uint32_t>(width), 4) + le(static_cast<uint32_t>(height), 4) + le(1, 2) + le(bits, 2) +
           le(compression, 4) + le(0, 20) + before_pixels + pixels;
  }
};

TEST(ReadImage, BmpKinds) {
  EXPECT_EQ(read_text(Bmp{1, 2, 24, 0, "", "\x01\x02\x03\0\x04\x05\x06\0"s}.file()).pixels, (Pixels{6, 5, 4, 3, 2, 1}));
  EXPECT_EQ(read_text(Bmp{1, -2, 24, 0, "", "\x01\x02\x03\0\x04\x05\x06\0"s}.file()).pixels, (Pixels{3, 2, 1, 6, 5, 4}));
  EXPECT_EQ(read_text(Bmp{1, 1, 32, 0, "", "\x01\x02\x03\x09"s}.file()).pixels, (Pixels{3, 2, 1}));
  EXPECT_EQ(read_text(Bmp{1, 1, 16, 0, "", le(31 << 10 | 1, 2) + "\0\0"s}.file()).pixels, (Pixels{255, 0, 8}));
  const std::string masks565 = le(0xF800, 4) + le(0x07E0, 4) + le(0x001F, 4);
  EXPECT_EQ(read_text(Bmp{1, 1, 16, 3, masks565, le(63 << 5, 2) + "\0\0"s}.file()).pixels, (Pixels{0, 255, 0}));
  const std::string masks8888 = le(0xFF, 4) + le(0xFF00, 4) + le(0xFF0000, 4) + le(0xFF000000, 4);
  EXPECT_EQ(read_text(Bmp{1, 1, 32, 6, masks8888, "\x01\x02\x03\x04"}.file()).pixels, (Pixels{1, 2, 3, 4}));

  std::string palette;
  for (uint32_t i = 0; i < 256; ++i) palette += le(i << 16 | 10, 4);  // red i, blue 10
  EXPECT_EQ(read_text(Bmp{2, 1, 8, 0, palette, "\x07\xff\0\0"s}.file()).pixels, (Pixels{7, 0, 10, 255, 0, 10}));
  EXPECT_EQ(read_text(Bmp{3, 1, 4, 0, palette.substr(0, 64), "\x3f\x50\0\0"s}.file()).pixels,
            (Pixels{3, 0, 10, 15, 0, 10, 5, 0, 10}));
  EXPECT_EQ(read_text(Bmp{2, 1, 1, 0, palette.substr(0, 8), "\x40\0\0\0"s}.file()).pixels, (Pixels{0, 0, 10, 1, 0, 10}));
}

TEST(ReadImage, BmpRefusals) {
  const std::string row = "\x01\x02\x03\0"s;
  EXPECT_THROW(read_text(Bmp{1, 2, 24, 0, "", row}.file()), Error);
  EXPECT_THROW(read_text(Bmp{1, 1, 8, 1, std::string(1024, 'x'), row}.file()), Error);
  EXPECT_THROW(read_text(Bmp{1, 1, 7, 0, "", row}.file()), Error);
  EXPECT_THROW(read_text(Bmp{1, 1, 32, 3, std::string(16, '\0'), row}.file()), Error);
  EXPECT_THROW(read_text(Bmp{1, INT32_MIN, 24, 0, "", row}.file()), Error);
}

// A PNG of one row written by libpng itself, so that every kind of pixel it knows can be made.
struct PngKind {
  int colour, depth, width;
  std::string row, palette, transparency;
  bool interlaced = false;
};

std::vector<std::byte> make_png(const PngKind& kind) {
  std::vector<std::byte> out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &out,
      [](png_structp p, png_bytep data, size_t size) {
        auto* to = static_cast<std::vector<std::byte>*>(png_get_io_ptr(p));
        to->insert(to->end(), reinterpret_cast<std::byte*>(data), reinterpret_cast<std::byte*>(data) + size);
      },
      nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(kind.width), 1, kind.depth, kind.colour,
               kind.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, 0, 0);
  if (!kind.palette.empty()) {
    png_set_PLTE(png, info, reinterpret_cast<png_const_colorp>(kind.palette.data()), static_cast<int>(kind.palette.size() / 3));
  }
  png_color_16 key{};
  key.gray = kind.transparency.empty() ? 0 : static_cast<unsigned char>(kind.transparency[0]);
  if (!kind.transparency.empty()) {
    png_set_tRNS(png, info, reinterpret_cast<png_const_bytep>(kind.transparency.data()),
                 static_cast<int>(kind.transparency.size()), &key);
  }
  png_write_info(png, info);
  auto* row = reinterpret_cast<png_bytep>(const_cast<char*>(kind.row.data()));
  png_write_image(png, &row);
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return out;
}

TEST(ReadImage, PngKinds) {
  const auto pixels = [](const PngKind& kind) { return read_image(make_png(kind)).pixels; };
  EXPECT_EQ(pixels({PNG_COLOR_TYPE_GRAY, 1, 3, "\xa0"}), (Pixels{255, 0, 255}));
  EXPECT_EQ(pixels({PNG_COLOR_TYPE_GRAY, 4, 2, "\x1f"}), (Pixels{17, 255}));
  EXPECT_EQ(pixels({PNG_COLOR_TYPE_GRAY, 16, 2, "\x12\xff\x80\x00"s}), (Pixels{0x12, 0x80}));
  EXPECT_EQ(pixels({PNG_COLOR_TYPE_RGB, 16, 1, "\x01\xff\x02\xff\x03\xff"}), (Pixels{1, 2, 3}));
  EXPECT_EQ(pixels({PNG_COLOR_TYPE_RGB_ALPHA, 16, 1, "\x01\xff\x02\xff\x03\xff\x04\xff"}), (Pixels{1, 2, 3, 4}));
  EXPECT_EQ(pixels({PNG_COLOR_TYPE_GRAY_ALPHA, 8, 1, "\x07\x09"}), (Pixels{7, 7, 7, 9}));
  EXPECT_EQ(pixels({PNG_COLOR_TYPE_GRAY, 8, 2, "\x07\x09", "", "\x09"}), (Pixels{7, 7, 7, 255, 9, 9, 9, 0}));
  EXPECT_EQ(pixels({PNG_COLOR_TYPE_PALETTE, 8, 2, "\x01\0"s, "abcdef"}), (Pixels{'d', 'e', 'f', 'a', 'b', 'c'}));
  EXPECT_EQ(pixels({PNG_COLOR_TYPE_PALETTE, 2, 2, "\x40", "abcdef", "\x05"}), (Pixels{'d', 'e', 'f', 255, 'a', 'b', 'c', 5}));
  EXPECT_EQ(pixels({PNG_COLOR_TYPE_GRAY, 8, 9, "123456789", "", "", true}),
            (Pixels{'1', '2', '3', '4', '5', '6', '7', '8', '9'}));
}

// 8×8 progressive CMYK with an Adobe marker, all pixels C 20 %, M 40 %, Y 60 %, K 20 % of ink.
const char kCmykJpeg[] =
    "/9j/7gAOQWRvYmUAZAAAAAAA/9sAQwAQCwwODAoQDg0OEhEQExgoGhgWFhgxIyUdKDozPTw5Mzg3QEhcTkBEV0U3OFBtUVdfYmdoZz5NcXlw"
    "ZHhcZWdj/8IAFAgACAAIBEMRAE0RAFkRAEsRAP/EABUAAQEAAAAAAAAAAAAAAAAAAAMF/9oADgRDAE0AWQBLAAAAAabBT//EABQQAQAAAAAA"
    "AAAAAAAAAAAAAAD/2gAIAUMAAQUCf//EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAU0AAQUCf//EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAI"
    "AVkAAQUCf//EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAUsAAQUCf//EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAUMABj8Cf//EABQQAQAA"
    "AAAAAAAAAAAAAAAAAAD/2gAIAU0ABj8Cf//EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAVkABj8Cf//EABQQAQAAAAAAAAAAAAAAAAAAAAD/"
    "2gAIAUsABj8Cf//EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAUMAAT8hf//EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAU0AAT8hf//EABQQ"
    "AQAAAAAAAAAAAAAAAAAAAAD/2gAIAVkAAT8hf//EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAUsAAT8hf//aAA4EQwBNAFkASwAAABBv/8QA"
    "FBABAAAAAAAAAAAAAAAAAAAAAP/aAAgBQwABPxB//8QAFBABAAAAAAAAAAAAAAAAAAAAAP/aAAgBTQABPxB//8QAFBABAAAAAAAAAAAAAAAA"
    "AAAAAP/aAAgBWQABPxB//8QAFBABAAAAAAAAAAAAAAAAAAAAAP/aAAgBSwABPxB//9k=";

TEST(ReadImage, CmykJpegBecomesRgb) {
  const Image image = read_image(base64_decode(kCmykJpeg));
  ASSERT_EQ(image.channels, 3);
  const int expected[] = {163, 122, 82};
  for (int c = 0; c < 3; ++c) EXPECT_NEAR(image.at(3, 3)[c], expected[c], 3) << c;
}

std::vector<std::byte> with_jpeg_exif(std::vector<std::byte> jpeg, const Exif& exif) {
  const auto block = build_exif(exif);
  std::string marker =
      "\xff\xe1"s + static_cast<char>((block.size() + 8) >> 8) + static_cast<char>((block.size() + 8) & 255) + "Exif\0\0"s;
  marker.append(reinterpret_cast<const char*>(block.data()), block.size());
  jpeg.insert(jpeg.begin() + 2, bytes_of(marker).begin(), bytes_of(marker).end());
  return jpeg;
}

TEST(ReadImage, AppliesOrientationUnlessToldNotTo) {
  const Image image = test_image(24, 8, 3);
  const auto turned = with_jpeg_exif(encode_jpeg(image), {.orientation = 6});
  EXPECT_EQ(read_image(turned, {.apply_orientation = false}), read_image(encode_jpeg(image)));
  EXPECT_EQ(read_image(turned), apply_orientation(read_image(encode_jpeg(image)), 6));
  EXPECT_EQ(read_image(turned).width, 8);
  if (!webp_available()) return;
  const auto webp = encode_webp(image, {}, 90), exif = build_exif({.orientation = 3});
  const auto turned_webp = add_webp_metadata(webp, {.width = 24, .height = 8, .has_alpha = false, .exif = exif, .xmp = {}});
  EXPECT_EQ(read_image(turned_webp), apply_orientation(read_image(webp), 3));
}

TEST(ReadImage, RejectsLargeImagesBeforeDecoding) {
  for (ImageFormat format : available_formats()) {
    const auto bytes = encode_image(test_image(20, 10, 3), format);
    EXPECT_NO_THROW(read_image(bytes, {.limits = {.pixels = 200}})) << name_of(format);
    EXPECT_THROW(read_image(bytes, {.limits = {.pixels = 199}}), Error) << name_of(format);
  }
  EXPECT_THROW(read_text(""), Error);
  EXPECT_THROW(read_text("plain words"), Error);
}

// In every build: without lcms2 no profile can be used, with it this one cannot.
TEST(ReadImage, UnusableColourProfileIsOneWarning) {
  const std::string profile = "no profile";
  uLongf size = compressBound(profile.size());
  std::string compressed(size, '\0');
  compress(reinterpret_cast<Bytef*>(compressed.data()), &size, reinterpret_cast<const Bytef*>(profile.data()), profile.size());
  const std::string chunk = "iCCPname\0\0"s + compressed.substr(0, size);
  const auto big_endian = [](uLong value) {
    std::string digits;
    for (int shift : {24, 16, 8, 0}) digits += static_cast<char>(value >> shift & 255);
    return digits;
  };
  const Image image = test_image(10, 10, 3);
  const auto plain = encode_png(image);
  std::string file(reinterpret_cast<const char*>(plain.data()), plain.size());
  const uLong sum = crc32_z(0, reinterpret_cast<const Bytef*>(chunk.data()), chunk.size());
  file.insert(8 + 25, big_endian(chunk.size() - 4) + chunk + big_endian(sum));  // after the signature and IHDR
  std::vector<std::string> warnings;
  const Log log([&](LogLevel, const std::string& text) { warnings.push_back(text); });
  EXPECT_EQ(read_image(bytes_of(file), {.log = log}), image);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("colour profile"), std::string::npos);
  EXPECT_EQ(read_image(bytes_of(file), {.to_srgb = false, .log = log}), image);
  EXPECT_EQ(warnings.size(), 1u);
}

}  // namespace
}  // namespace flux2
