#include "image/embedded.h"

#include "image/byte_view.h"
#include "image/png_chunks.h"
#include "image/webp_container.h"

namespace flux2 {

namespace {

using namespace std::string_view_literals;

Embedded in_png(std::span<const std::byte> bytes) {
  Embedded found;
  for_each_png_chunk(bytes, [&](std::string_view type, std::span<const std::byte> data) {
    if (type == "eXIf") found.exif = data;
  });
  return found;
}

Embedded in_jpeg(std::span<const std::byte> bytes) {
  constexpr uint8_t kStartOfScan = 0xDA, kEndOfImage = 0xD9, kApp1 = 0xE1;
  const ByteView file(bytes, std::endian::big);
  const std::string_view xmp_prefix(kJpegXmpPrefix, sizeof kJpegXmpPrefix);
  Embedded found;
  size_t at = 2;
  while (at + 4 <= file.size() && file.u8(at) == 0xFF) {
    const uint8_t marker = file.u8(at + 1);
    if (marker == 0xFF) {  // fill byte
      ++at;
      continue;
    }
    const size_t length = file.u16(at + 2);
    if (marker == kStartOfScan || marker == kEndOfImage || length < 2 || length > file.size() - at - 2) break;
    const auto data = file.part(at + 4, length - 2);
    const std::string_view text = file.text(at + 4, length - 2);
    if (marker == kApp1 && text.starts_with("Exif\0\0"sv) && found.exif.empty()) found.exif = data;
    if (marker == kApp1 && text.starts_with(xmp_prefix) && found.xmp.empty()) {
      found.xmp = data.subspan(xmp_prefix.size());
    }
    at += 2 + length;
  }
  return found;
}

Embedded in_webp(std::span<const std::byte> bytes) {
  Embedded found;
  for_each_webp_chunk(bytes, [&](std::string_view type, std::span<const std::byte> data) {
    if (type == "EXIF") found.exif = data;
    if (type == "XMP ") found.xmp = data;
  });
  return found;
}

}  // namespace

Embedded find_embedded(std::span<const std::byte> bytes, ImageFormat format) {
  switch (format) {
    case ImageFormat::Png: return in_png(bytes);
    case ImageFormat::Jpeg: return in_jpeg(bytes);
    case ImageFormat::WebP: return in_webp(bytes);
    case ImageFormat::Ppm:
    case ImageFormat::Bmp: return {};
  }
  return {};
}

}  // namespace flux2
