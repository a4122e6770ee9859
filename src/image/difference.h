#pragma once

#include "image/image.h"

namespace flux2 {

// The difference between two images, in 8-bit counts over all samples.
struct PictureDifference {
  int max = 0;
  double mean = 0;
  double psnr = 0;  // dB; infinite when they are equal

  bool identical() const { return max == 0; }
};

// Both have the same size and channels. `where`, when given, is grey of that size: only pixels above 127 count.
PictureDifference difference(const Image& a, const Image& b, const Image* where = nullptr);

}  // namespace flux2
