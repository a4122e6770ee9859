#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "image/image.h"
#include "image/metadata.h"

namespace flux2 {

// One decoder for each format, for read_image: pixels as stored, EXIF orientation not applied.
Image decode_png(std::span<const std::byte> bytes, const ImageLimits& limits);
Image decode_jpeg(std::span<const std::byte> bytes, const ImageLimits& limits);
Image decode_bmp(std::span<const std::byte> bytes, const ImageLimits& limits);
Image decode_pnm(std::span<const std::byte> bytes, const ImageLimits& limits);

// WebP is optional at build time: webp.cpp or webp_missing.cpp is built. In the latter both functions throw Incompatible.
bool webp_available();
Image decode_webp(std::span<const std::byte> bytes, const ImageLimits& limits);
std::vector<std::byte> encode_webp(const Image& image, const ImageMetadata& metadata, int quality);  // lossy, 1…100

}  // namespace flux2
