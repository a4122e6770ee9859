// Images may come from anywhere: any bytes must give an image, metadata or an Error.
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "image/format.h"
#include "image/metadata.h"
#include "image/read_image.h"
#include "tests/fuzz/target.h"

namespace {

constexpr size_t kSignature = 8, kOverhead = 12;

uint32_t big_endian(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | uint32_t{p[3]};
}

// Without this every mutation of a PNG file would end at a chunk's checksum.
void repair_checksums(std::vector<uint8_t>& png) {
  for (size_t at = kSignature; at + kOverhead <= png.size();) {
    const size_t length = big_endian(&png[at]);
    if (length > png.size() - at - kOverhead) return;
    const auto sum = static_cast<uint32_t>(crc32_z(0, &png[at + 4], 4 + length));
    for (size_t i = 0; i < 4; ++i) png[at + 8 + length + i] = static_cast<uint8_t>(sum >> (24 - 8 * i) & 255);
    at += kOverhead + length;
  }
}

}  // namespace

FUZZ_TARGET(image) {
  std::vector<uint8_t> file(data, data + size);
  const auto bytes = std::as_bytes(std::span(file));
  if (flux2::sniff_format(bytes) == flux2::ImageFormat::Png) repair_checksums(file);
  try {
    flux2::read_image(bytes, {.limits = {.pixels = 1 << 16}});
  } catch (const flux2::Error&) {}
  try {
    flux2::read_metadata(bytes);
  } catch (const flux2::Error&) {}
}
