#pragma once

#include <vector>

#include "image/image.h"

namespace flux2 {

// Pictures as planes of floats, for measuring below the pixel. Coordinates are of pixel centres, (0, 0) the first.
struct FloatPlanes {
  int width = 0, height = 0;
  std::vector<std::vector<float>> planes;

  const float* row(size_t plane, int y) const {
    return planes[plane].data() + static_cast<size_t>(y) * static_cast<size_t>(width);
  }
};

// Each value is the mean of a square of `factor` pixels; a rest at the right and below is left out.
FloatPlanes shrunk_planes(const Image& image, int factor);
FloatPlanes halved(const FloatPlanes& in);

// Bicubic (Catmull–Rom) between pixels, the outermost repeated beyond the borders: out[plane] at (x, y).
void sample_planes(const FloatPlanes& in, double x, double y, float* out);

}  // namespace flux2
