#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "image/image.h"

namespace flux2 {

struct PaletteImage {
  int width = 0, height = 0;
  std::vector<std::array<uint8_t, 3>> colours;
  std::vector<uint8_t> indices;  // [height, width]
};

// At most `max_colours` (2…256) found by median cut, the rest shown by Floyd–Steinberg dithering. The image is RGB.
PaletteImage reduce_colours(const Image& rgb, int max_colours = 256);

}  // namespace flux2
