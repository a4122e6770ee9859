#pragma once

#include <memory>
#include <vector>

#include "image/image.h"

namespace flux2 {

// A picture as the autoencoder sees it: three planes of height × width samples, [−1, 1] but not clamped.
struct Planes {
  int width = 0, height = 0;
  std::vector<float> values;
};

std::shared_ptr<const Planes> planes_of(const Image& rgb);

}  // namespace flux2
