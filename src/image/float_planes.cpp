#include "image/float_planes.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace flux2 {

namespace {

std::array<float, 4> catmull_rom(float t) {
  const float t2 = t * t, t3 = t2 * t;
  return {-0.5f * t3 + t2 - 0.5f * t, 1.5f * t3 - 2.5f * t2 + 1, -1.5f * t3 + 2 * t2 + 0.5f * t, 0.5f * t3 - 0.5f * t2};
}

}  // namespace

FloatPlanes shrunk_planes(const Image& image, int factor) {
  FloatPlanes out{image.width / factor, image.height / factor, {}};
  const auto channels = static_cast<size_t>(image.channels);
  const float share = 1.0f / static_cast<float>(factor * factor);
  out.planes.assign(channels, std::vector<float>(static_cast<size_t>(out.width) * static_cast<size_t>(out.height)));
  for (int y = 0; y < out.height * factor; ++y) {
    const uint8_t* from = image.row(y);
    const size_t start = static_cast<size_t>(y / factor) * static_cast<size_t>(out.width);
    for (int x = 0; x < out.width * factor; ++x)
      for (size_t c = 0; c < channels; ++c)
        out.planes[c][start + static_cast<size_t>(x / factor)] += share * from[static_cast<size_t>(x) * channels + c];
  }
  return out;
}

FloatPlanes halved(const FloatPlanes& in) {
  FloatPlanes out{in.width / 2, in.height / 2, {}};
  for (size_t c = 0; c < in.planes.size(); ++c) {
    std::vector<float> plane;
    plane.reserve(static_cast<size_t>(out.width) * static_cast<size_t>(out.height));
    for (int y = 0; y < out.height; ++y) {
      const float *a = in.row(c, 2 * y), *b = in.row(c, 2 * y + 1);
      for (int x = 0; x < out.width; ++x) plane.push_back(0.25f * (a[2 * x] + a[2 * x + 1] + b[2 * x] + b[2 * x + 1]));
    }
    out.planes.push_back(std::move(plane));
  }
  return out;
}

void sample_planes(const FloatPlanes& in, double x, double y, float* out) {
  const double left = std::floor(x), top = std::floor(y);
  const auto wx = catmull_rom(static_cast<float>(x - left)), wy = catmull_rom(static_cast<float>(y - top));
  std::array<int, 4> columns;
  for (int k = 0; k < 4; ++k) columns[static_cast<size_t>(k)] = std::clamp(static_cast<int>(left) - 1 + k, 0, in.width - 1);
  std::fill_n(out, in.planes.size(), 0.0f);
  for (int k = 0; k < 4; ++k) {
    const int line = std::clamp(static_cast<int>(top) - 1 + k, 0, in.height - 1);
    for (size_t c = 0; c < in.planes.size(); ++c) {
      const float* row = in.row(c, line);
      float sum = 0;
      for (size_t j = 0; j < 4; ++j) sum += wx[j] * row[columns[j]];
      out[c] += wy[static_cast<size_t>(k)] * sum;
    }
  }
}

}  // namespace flux2
