#pragma once

#include <functional>
#include <vector>

#include "base/log.h"

namespace flux2 {

// One picture as the decoder gives it: three planes of height × width values, [−1, 1] but not clamped.
struct Planes {
  int width = 0, height = 0;
  std::vector<float> values;
};

// Decodes; when the result holds NaN or is black all over, decodes once more in f32 (if that is possible) and says
// so. Throws when it is still broken. `retried` tells whether the second way was taken.
Planes checked_decode(const std::function<Planes()>& decode, const std::function<Planes()>& decode_in_f32, const Log& log,
                      bool& retried);

}  // namespace flux2
