#include "image/difference.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/error.h"

namespace flux2 {

PictureDifference difference(const Image& a, const Image& b, const Image* where) {
  check(a.width == b.width && a.height == b.height && a.channels == b.channels,
        "images of {}×{} with {} channels and {}×{} with {} cannot be compared", a.width, a.height, a.channels, b.width, b.height,
        b.channels);
  require(!where || (where->width == a.width && where->height == a.height && where->channels == 1),
          "difference: the area has another size");
  PictureDifference result;
  int64_t sum = 0, squares = 0, count = 0;
  const auto channels = static_cast<size_t>(a.channels);
  for (size_t i = 0; i < a.pixels.size(); ++i) {
    if (where && where->pixels[i / channels] < 128) continue;
    const int d = std::abs(a.pixels[i] - b.pixels[i]);
    result.max = std::max(result.max, d);
    sum += d;
    squares += int64_t{d} * d;
    ++count;
  }
  result.psnr = std::numeric_limits<double>::infinity();
  if (squares == 0) return result;
  result.mean = static_cast<double>(sum) / static_cast<double>(count);
  result.psnr = 10 * std::log10(255.0 * 255.0 * static_cast<double>(count) / static_cast<double>(squares));
  return result;
}

}  // namespace flux2
