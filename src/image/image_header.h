#pragma once

#include <cstddef>
#include <span>

#include "image/format.h"
#include "image/image.h"

namespace flux2 {

// What the first bytes of an image file say. Nothing is decoded, so the rest may still be damaged.
struct ImageHeader {
  ImageFormat format = ImageFormat::Png;
  int width = 0, height = 0;  // as shown: the orientation of the EXIF block is applied
};

// Throws BadFile for what is no image, has no valid header, or is over the limits.
ImageHeader read_image_header(std::span<const std::byte> bytes, const ImageLimits& limits = {});

}  // namespace flux2
