#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "image/image.h"
#include "image/metadata.h"

namespace flux2 {

// WebP is an optional part: webp.cpp or webp_missing.cpp is built. In the latter the codecs throw Incompatible.
bool webp_available();
Image decode_webp(std::span<const std::byte> bytes, int64_t max_pixels);
std::vector<std::byte> encode_webp(const Image& image, const ImageMetadata& metadata, int quality);  // lossy, 1…100

}  // namespace flux2
