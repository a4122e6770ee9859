#pragma once

#include <cstddef>
#include <span>

#include "image/format.h"

namespace flux2 {

// Metadata blocks of a picture file, as views into it; empty where there is none.
struct Embedded {
  std::span<const std::byte> exif;
  std::span<const std::byte> xmp;  // JPEG and WebP; in PNG it is one of the text chunks
};

// Looks as far as the file's structure is sound; what lies behind a fault is not found.
Embedded find_embedded(std::span<const std::byte> bytes, ImageFormat format);

constexpr char kJpegXmpPrefix[] = "http://ns.adobe.com/xap/1.0/";  // followed by its terminating zero
constexpr char kPngXmpKeyword[] = "XML:com.adobe.xmp";

}  // namespace flux2
