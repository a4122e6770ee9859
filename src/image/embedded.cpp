#include "image/embedded.h"

#include <algorithm>

#include "image/byte_view.h"
#include "image/png_chunks.h"
#include "image/webp_container.h"

namespace flux2 {

namespace {

using namespace std::string_view_literals;

constexpr std::string_view kIccPrefix = "ICC_PROFILE\0"sv;  // then the number of this part, from 1, and the number of parts

Embedded in_png(std::span<const std::byte> bytes) {
  Embedded found;
  for_each_png_chunk(bytes, [&](std::string_view type, std::span<const std::byte> data) {
    if (type == "eXIf") found.exif = data;
    if (type == "iCCP" && found.icc.empty()) found.icc = {data};
  });
  return found;
}

Embedded in_jpeg(std::span<const std::byte> bytes) {
  constexpr uint8_t kStartOfScan = 0xDA, kEndOfImage = 0xD9, kApp1 = 0xE1, kApp2 = 0xE2;
  const ByteView file(bytes, std::endian::big);
  const std::string_view xmp_prefix(kJpegXmpPrefix, sizeof kJpegXmpPrefix);
  Embedded found;
  std::vector<std::span<const std::byte>> icc;  // by part number; a profile with a missing part is not used
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
    if (marker == kApp2 && text.starts_with(kIccPrefix) && data.size() > kIccPrefix.size() + 2) {
      const auto number = std::to_integer<size_t>(data[kIccPrefix.size()]),
                 count = std::to_integer<size_t>(data[kIccPrefix.size() + 1]);
      icc.resize(std::max(icc.size(), count));
      if (number >= 1 && number <= icc.size()) icc[number - 1] = data.subspan(kIccPrefix.size() + 2);
    }
    at += 2 + length;
  }
  if (std::none_of(icc.begin(), icc.end(), [](const auto& part) { return part.empty(); })) found.icc = std::move(icc);
  return found;
}

Embedded in_webp(std::span<const std::byte> bytes) {
  Embedded found;
  for_each_webp_chunk(bytes, [&](std::string_view type, std::span<const std::byte> data) {
    if (type == "EXIF") found.exif = data;
    if (type == "XMP ") found.xmp = data;
    if (type == "ICCP" && found.icc.empty()) found.icc = {data};
  });
  return found;
}

}  // namespace

Embedded find_embedded(std::span<const std::byte> bytes, ImageFormat format, const ImageLimits& limits) {
  const auto within = [&](Embedded found) {
    if (found.exif.size() > limits.metadata_bytes) found.exif = {};
    if (found.xmp.size() > limits.metadata_bytes) found.xmp = {};
    size_t profile = 0;
    for (const auto part : found.icc) profile += part.size();
    if (profile > limits.metadata_bytes) found.icc.clear();
    return found;
  };
  switch (format) {
    case ImageFormat::Png: return within(in_png(bytes));
    case ImageFormat::Jpeg: return within(in_jpeg(bytes));
    case ImageFormat::WebP: return within(in_webp(bytes));
    case ImageFormat::Ppm:
    case ImageFormat::Bmp: return {};
  }
  return {};
}

std::vector<std::byte> icc_profile(const Embedded& embedded, ImageFormat format, const ImageLimits& limits) {
  std::vector<std::byte> profile;
  for (const auto part : embedded.icc) profile.insert(profile.end(), part.begin(), part.end());
  if (format != ImageFormat::Png || profile.empty()) return profile;
  const std::string_view chunk(reinterpret_cast<const char*>(profile.data()), profile.size());
  const size_t name = chunk.find('\0');  // then a zero for the method, then the compressed profile
  if (name == chunk.npos || name + 2 > chunk.size() || chunk[name + 1] != 0) return {};
  size_t work = limits.metadata_bytes;
  const auto text = inflated(chunk.substr(name + 2), limits.metadata_bytes, work);
  if (!text) return {};
  const auto bytes = std::as_bytes(std::span(*text));
  return {bytes.begin(), bytes.end()};
}

}  // namespace flux2
