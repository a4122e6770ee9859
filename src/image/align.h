#pragma once

#include <array>

#include "image/image.h"

namespace flux2 {

// How a picture that was drawn again lies over its original: what is at p there, seen from the centre, is found at
// scale·p + (dx, dy) here, and a sample x there is gain·x + offset here.
struct Alignment {
  double dx = 0, dy = 0;  // pixels
  double scale = 1;
  std::array<double, 3> gain = {1, 1, 1};
  std::array<double, 3> offset = {0, 0, 0};  // counts of 8 bits

  bool is_identity() const;
};

// Measures over the kept area: `kept` is grey, 255 where the original must show again, 0 where the picture is new, between
// them in proportion. All three have one size; picture and original are RGB. Parts of the kept area that were drawn
// differently count less. The answer is the identity when the area is too small or shows nothing to hold on to, and when
// what was found is larger than a redrawn picture is ever off (a sixteenth of a side, 6 % of scale, half or double the
// contrast) or does not bring the pictures closer.
Alignment measure_alignment(const Image& picture, const Image& original, const Image& kept);

// The picture brought back over its original: shift and scale undone by bicubic interpolation, then gain and offset.
// At the borders the outermost pixels are repeated.
Image aligned(const Image& picture, const Alignment& alignment);

}  // namespace flux2
