#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/log.h"
#include "image/image.h"

namespace flux2 {

struct ReadOptions {
  bool apply_orientation = true;  // turn the image as its EXIF block asks
  bool to_srgb = true;            // convert the colours of an image that has an ICC profile
  ImageLimits limits = {};        // what goes beyond them is refused before it is decoded
  Log log = {};                   // receives a warning about a colour profile that cannot be used
};

// Reads PNG, JPEG, BMP, PPM/PGM and, when built with it, WebP, recognised by content. Grey, RGB and RGBA come as
// stored, palettes expanded, 16-bit samples cut to their upper byte (as Pillow does), CMYK converted without its profile. Throws
// BadFile, naming the file and the fault, for anything damaged, truncated or unknown.
Image read_image(const std::filesystem::path& path, const ReadOptions& options = {});
Image read_image(std::span<const std::byte> bytes, const ReadOptions& options = {});

}  // namespace flux2
