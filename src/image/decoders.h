#pragma once

#include <cstddef>
#include <span>

#include "image/image.h"

namespace flux2 {

// One decoder a format, for read_image: pixels as stored, EXIF orientation not applied.
Image decode_png(std::span<const std::byte> bytes, int64_t max_pixels);
Image decode_jpeg(std::span<const std::byte> bytes, int64_t max_pixels);
Image decode_bmp(std::span<const std::byte> bytes, int64_t max_pixels);
Image decode_pnm(std::span<const std::byte> bytes, int64_t max_pixels);

}  // namespace flux2
