#include <algorithm>
#include <array>
#include <bit>

#include "image/byte_view.h"
#include "image/codecs.h"

namespace flux2 {

namespace {

constexpr uint32_t kCoreHeader = 12, kInfoHeader = 40, kWithMasks = 52, kWithAlphaMask = 56;
constexpr uint32_t kPlain = 0, kBitFields = 3, kAlphaBitFields = 6;

struct Header {
  int width, height;
  bool top_down;
  unsigned bits;
  size_t palette_at, palette_entry, palette_size;  // entries of 3 or 4 bytes, blue first
  size_t pixels_at;
  std::array<uint32_t, 4> masks{};  // red, green, blue, alpha, for 16 and 32 bits
};

Header read_header(const ByteView& file, const ImageLimits& limits) {
  const uint32_t size = file.u32(14);
  if (size != kCoreHeader && size < kInfoHeader) {
    fail(ErrorCode::BadFile, "BMP: a header of {} bytes is not known", size);
  }
  const bool core = size == kCoreHeader;
  const int64_t width = core ? file.u16(18) : file.i32(18);
  const int64_t rows = core ? file.u16(20) : int64_t{file.i32(22)};
  check_image_size(width, rows < 0 ? -rows : rows, limits);

  Header h{};
  h.width = static_cast<int>(width);
  h.height = static_cast<int>(rows < 0 ? -rows : rows);
  h.top_down = rows < 0;
  h.bits = file.u16(core ? 24 : 28);
  h.pixels_at = file.u32(10);
  const uint32_t compression = core ? kPlain : file.u32(30);
  const bool masked = compression == kBitFields || compression == kAlphaBitFields;
  if (compression != kPlain && !masked) {
    throw Error(ErrorCode::BadFile, fmt::format("BMP: compression {} is not supported", compression),
                "save the image uncompressed or as PNG");
  }
  const size_t header_end = 14 + size_t{size};
  if (masked) {
    // Masks lie inside the longer headers and directly behind the shortest: at the same place either way.
    for (size_t i = 0; i < 3; ++i) h.masks[i] = file.u32(54 + 4 * i);
    if (size >= kWithAlphaMask || compression == kAlphaBitFields) h.masks[3] = file.u32(66);
  } else if (h.bits == 16) {
    h.masks = {0x7c00, 0x03e0, 0x001f, 0};
  } else {
    h.masks = {0xff0000, 0x00ff00, 0x0000ff, 0};
  }
  if (h.bits <= 8) {
    const uint32_t used = core ? 0 : file.u32(46);
    h.palette_entry = core ? 3 : 4;
    h.palette_size = used != 0 ? std::min<size_t>(used, size_t{1} << h.bits) : size_t{1} << h.bits;
    h.palette_at = header_end + (masked && size < kWithMasks ? 12 : 0);
  }
  return h;
}

// A sample of as many bits as its mask has, stretched to 0…255.
uint8_t masked_sample(uint32_t pixel, uint32_t mask) {
  const int shift = std::countr_zero(mask);
  const uint64_t highest = mask >> shift;
  return static_cast<uint8_t>((uint64_t{(pixel & mask) >> shift} * 255 + highest / 2) / highest);
}

void read_indexed(const ByteView& file, const Header& h, std::span<const std::byte> line, uint8_t* to) {
  for (int x = 0; x < h.width; ++x, to += 3) {
    const size_t bit = static_cast<size_t>(x) * h.bits;
    const unsigned byte = std::to_integer<unsigned>(line[bit / 8]);
    const unsigned index = byte >> (8 - h.bits - bit % 8) & ((1u << h.bits) - 1);
    if (index >= h.palette_size) fail(ErrorCode::BadFile, "BMP: colour {} of a palette of {}", index, h.palette_size);
    const auto entry = file.part(h.palette_at + index * h.palette_entry, 3);
    for (size_t c = 0; c < 3; ++c) to[c] = std::to_integer<uint8_t>(entry[2 - c]);
  }
}

void read_masked(const ByteView& line, const Header& h, int channels, uint8_t* to) {
  for (int x = 0; x < h.width; ++x, to += channels) {
    const size_t at = static_cast<size_t>(x) * (h.bits / 8);
    const uint32_t pixel = h.bits == 16 ? line.u16(at) : line.u32(at);
    for (size_t c = 0; c < static_cast<size_t>(channels); ++c) to[c] = masked_sample(pixel, h.masks[c]);
  }
}

void read_bgr(std::span<const std::byte> line, int width, uint8_t* to) {
  for (size_t i = 0; i < 3 * static_cast<size_t>(width); i += 3) {
    for (size_t c = 0; c < 3; ++c) to[i + c] = std::to_integer<uint8_t>(line[i + 2 - c]);
  }
}

}  // namespace

Image decode_bmp(std::span<const std::byte> bytes, const ImageLimits& limits) {
  const ByteView file(bytes, std::endian::little);
  const Header h = read_header(file, limits);
  const bool indexed = h.bits == 1 || h.bits == 4 || h.bits == 8, masked = h.bits == 16 || h.bits == 32;
  if (!indexed && !masked && h.bits != 24) fail(ErrorCode::BadFile, "BMP: {} bits per pixel are not supported", h.bits);
  if (masked && (h.masks[0] == 0 || h.masks[1] == 0 || h.masks[2] == 0)) {
    fail(ErrorCode::BadFile, "BMP: empty colour mask");
  }

  const size_t line_bytes = (static_cast<size_t>(h.width) * h.bits + 31) / 32 * 4;
  file.part(h.pixels_at, line_bytes * static_cast<size_t>(h.height));  // all there, before memory is taken
  Image image(h.width, h.height, masked && h.masks[3] != 0 ? 4 : 3);
  for (int y = 0; y < h.height; ++y) {
    const int stored = h.top_down ? y : h.height - 1 - y;
    const auto line = file.part(h.pixels_at + static_cast<size_t>(stored) * line_bytes, line_bytes);
    if (indexed) {
      read_indexed(file, h, line, image.row(y));
    } else if (masked) {
      read_masked(ByteView(line, std::endian::little), h, image.channels, image.row(y));
    } else {
      read_bgr(line, h.width, image.row(y));
    }
  }
  return image;
}

}  // namespace flux2
