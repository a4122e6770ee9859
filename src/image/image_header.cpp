#include "image/image_header.h"

#include <cctype>
#include <utility>

#include "image/byte_view.h"
#include "image/embedded.h"
#include "image/exif.h"
#include "image/webp_container.h"

namespace flux2 {

namespace {

using Size = std::pair<int64_t, int64_t>;  // width, height

Size png_size(const ByteView& file) {
  if (file.text(12, 4) != "IHDR") fail(ErrorCode::BadFile, "PNG: its header is invalid");
  return {file.u32(16), file.u32(20)};
}

// The size is in the frame header, behind any number of other segments.
Size jpeg_size(const ByteView& file) {
  for (size_t at = 2;;) {
    if (file.u8(at) != 0xFF) fail(ErrorCode::BadFile, "JPEG: the file is damaged");
    const uint8_t marker = file.u8(at + 1);
    if (marker == 0xFF) {  // fill byte
      ++at;
      continue;
    }
    const bool is_frame = marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
    if (is_frame) return {file.u16(at + 7), file.u16(at + 5)};
    const size_t length = file.u16(at + 2);
    if (marker == 0xD9 || marker == 0xDA || length < 2) fail(ErrorCode::BadFile, "JPEG: the file has no frame header");
    at += 2 + length;
  }
}

Size webp_size(std::span<const std::byte> bytes) {
  const ByteView file(bytes, std::endian::little);
  const std::string_view type = file.text(12, 4);
  constexpr size_t kData = 20;
  const auto u24 = [&](size_t at) { return int64_t{file.u16(at)} | int64_t{file.u8(at + 2)} << 16; };
  if (type == "VP8X") return {u24(kData + 4) + 1, u24(kData + 7) + 1};
  if (type == "VP8L") {
    const uint32_t bits = file.u32(kData + 1);
    return {(bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1};
  }
  if (type == "VP8 ") return {file.u16(kData + 6) & 0x3FFF, file.u16(kData + 8) & 0x3FFF};
  fail(ErrorCode::BadFile, "WebP: the file is damaged or truncated");
}

Size bmp_size(std::span<const std::byte> bytes) {
  const ByteView file(bytes, std::endian::little);
  constexpr uint32_t kOldHeader = 12;
  if (file.u32(14) == kOldHeader) return {file.u16(18), file.u16(20)};
  const int64_t rows = file.i32(22);
  return {file.i32(18), rows < 0 ? -rows : rows};
}

Size pnm_size(const ByteView& file) {
  size_t at = 2;
  const auto number = [&] {
    for (; std::isspace(file.u8(at)) || file.u8(at) == '#'; ++at)
      if (file.u8(at) == '#')
        while (file.u8(at) != '\n') ++at;
    int64_t value = 0;
    for (; std::isdigit(file.u8(at)) && value < 1'000'000'000; ++at) value = value * 10 + (file.u8(at) - '0');
    return value;
  };
  const int64_t width = number();
  return {width, number()};
}

Size stored_size(std::span<const std::byte> bytes, ImageFormat format) {
  const ByteView file(bytes, std::endian::big);
  switch (format) {
    case ImageFormat::Png: return png_size(file);
    case ImageFormat::Jpeg: return jpeg_size(file);
    case ImageFormat::WebP: return webp_size(bytes);
    case ImageFormat::Ppm: return pnm_size(file);
    case ImageFormat::Bmp: return bmp_size(bytes);
  }
  fail(ErrorCode::Internal, "this format has no header reader");
}

}  // namespace

ImageHeader read_image_header(std::span<const std::byte> bytes, const ImageLimits& limits) {
  const auto format = sniff_format(bytes);
  if (!format)
    throw Error(ErrorCode::BadFile, bytes.empty() ? "the file is empty" : "not an image in a known format",
                "PNG, JPEG, BMP, PPM and, where built in, WebP can be read");
  check_limit("image-bytes", bytes.size(), limits.file_bytes, "the image file has {}");
  auto [width, height] = stored_size(bytes, *format);
  check_image_size(width, height, limits);
  constexpr int kFirstTurned = 5;  // orientations 5…8 exchange the sides
  if (parse_exif(find_embedded(bytes, *format, limits).exif).orientation >= kFirstTurned) std::swap(width, height);
  return {*format, static_cast<int>(width), static_cast<int>(height)};
}

}  // namespace flux2
