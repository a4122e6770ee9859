#pragma once

#include <array>

#include "image/image.h"

namespace flux2 {

// How a regenerated image is displaced relative to its original: the point p of the original, relative to the centre, is at
// scale·p + (dx, dy) in the image, and the sample x of the original is gain·x + offset in the image.
struct Alignment {
  double dx = 0, dy = 0;  // pixels
  double scale = 1;
  std::array<double, 3> gain = {1, 1, 1};
  std::array<double, 3> offset = {0, 0, 0};  // counts of 8 bits

  bool is_identity() const;
};

// Measures the displacement over the kept area. `kept` is grey: 255 where the original must be preserved, 0 where the image is
// new, values between in proportion. All three have the same size; image and original are RGB. Parts of the kept area that were
// drawn differently have less weight. Returns the identity if the area is too small or has no structure, if the result is
// implausibly large (a sixteenth of a side, 6 % of scale, half or double the contrast), or if it does not bring the images
// closer.
Alignment measure_alignment(const Image& picture, const Image& original, const Image& kept);

// Aligns the image with its original: undoes shift and scale with bicubic interpolation, then gain and offset. At the borders the
// outermost pixels are repeated.
Image aligned(const Image& picture, const Alignment& alignment);

}  // namespace flux2
