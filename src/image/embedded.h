#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/limits.h"
#include "image/format.h"

namespace flux2 {

// Metadata blocks of an image file, as views into it; empty where there is none.
struct Embedded {
  std::span<const std::byte> exif;
  std::span<const std::byte> xmp;               // JPEG and WebP; in PNG it is one of the text chunks
  std::vector<std::span<const std::byte>> icc;  // parts of the ICC profile in order; in PNG the iCCP chunk, compressed
};

// Reads as far as the file's structure is valid; data after a fault is not found. Blocks over the limit are left out.
Embedded find_embedded(std::span<const std::byte> bytes, ImageFormat format, const ImageLimits& limits = {});

// The ICC profile in one piece; empty where there is none or where it is damaged or over the limit.
std::vector<std::byte> icc_profile(const Embedded& embedded, ImageFormat format, const ImageLimits& limits = {});

constexpr char kJpegXmpPrefix[] = "http://ns.adobe.com/xap/1.0/";  // followed by its terminating zero
constexpr char kPngXmpKeyword[] = "XML:com.adobe.xmp";

}  // namespace flux2
