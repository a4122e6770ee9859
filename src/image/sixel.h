#pragma once

#include <string>

#include "image/image.h"

namespace flux2 {

// The image as a sixel sequence (DCS … ST) of at most 256 colours. The image is RGB.
std::string encode_sixel(const Image& rgb);

}  // namespace flux2
