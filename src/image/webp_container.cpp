#include "image/webp_container.h"

#include "image/byte_view.h"

namespace flux2 {

namespace {

constexpr size_t kFileHeader = 12, kChunkHeader = 8;
constexpr std::byte kHasAlpha{0x10}, kHasExif{0x08}, kHasXmp{0x04};

void put_le(std::vector<std::byte>& out, size_t value, int size) {
  for (int i = 0; i < size; ++i) out.push_back(static_cast<std::byte>(value >> (8 * i) & 255));
}

void put_text(std::vector<std::byte>& out, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

void put_chunk(std::vector<std::byte>& out, std::string_view type, std::span<const std::byte> data) {
  put_text(out, type);
  put_le(out, data.size(), 4);
  out.insert(out.end(), data.begin(), data.end());
  if (data.size() % 2 != 0) out.push_back(std::byte{0});
}

}  // namespace

void for_each_webp_chunk(std::span<const std::byte> bytes,
                         const std::function<void(std::string_view, std::span<const std::byte>)>& visit) {
  const ByteView file(bytes, std::endian::little);
  for (size_t at = kFileHeader; at + kChunkHeader <= file.size();) {
    const size_t length = file.u32(at + 4);
    if (length > file.size() - at - kChunkHeader) return;
    visit(file.text(at, 4), file.part(at + kChunkHeader, length));
    at += kChunkHeader + length + length % 2;
  }
}

std::vector<std::byte> add_webp_metadata(std::span<const std::byte> encoded, const WebpExtras& extras) {
  std::vector<std::byte> features;
  features.push_back((extras.has_alpha ? kHasAlpha : std::byte{0}) | (extras.exif.empty() ? std::byte{0} : kHasExif) |
                     (extras.xmp.empty() ? std::byte{0} : kHasXmp));
  put_le(features, 0, 3);
  put_le(features, static_cast<size_t>(extras.width - 1), 3);
  put_le(features, static_cast<size_t>(extras.height - 1), 3);

  std::vector<std::byte> out;
  put_text(out, "RIFF");
  put_le(out, 0, 4);
  put_text(out, "WEBP");
  put_chunk(out, "VP8X", features);
  for_each_webp_chunk(encoded, [&](std::string_view type, std::span<const std::byte> data) {
    if (type == "ALPH" || type == "VP8 " || type == "VP8L") put_chunk(out, type, data);
  });
  if (!extras.exif.empty()) put_chunk(out, "EXIF", extras.exif);
  if (!extras.xmp.empty()) put_chunk(out, "XMP ", extras.xmp);
  for (size_t i = 0; i < 4; ++i) out[4 + i] = static_cast<std::byte>((out.size() - 8) >> (8 * i) & 255);
  return out;
}

}  // namespace flux2
