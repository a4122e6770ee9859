#include "image/shrink_by_area.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace flux2 {

namespace {

// Output sample i is the sum over the inputs [first[i], first[i + 1]) of `parts`.
struct AreaAxis {
  struct Part {
    size_t from;  // input index
    float weight;
  };
  std::vector<Part> parts;
  std::vector<size_t> first;

  AreaAxis(int in, int out, double ratio) {
    constexpr double kNegligible = 1e-3;
    for (int i = 0; i < out; ++i) {
      first.push_back(parts.size());
      const double begin = i * ratio, end = begin + ratio, width = std::min(ratio, in - begin);
      const int last = std::min(static_cast<int>(std::floor(end)), in - 1);
      const int whole = std::min(static_cast<int>(std::ceil(begin)), last);
      const auto add = [&](int from, double share) {
        parts.push_back({static_cast<size_t>(from), static_cast<float>(share / width)});
      };
      if (whole - begin > kNegligible) add(whole - 1, whole - begin);
      for (int from = whole; from < last; ++from) add(from, 1.0);
      if (end - last > kNegligible) add(last, std::min({end - last, 1.0, width}));
    }
    first.push_back(parts.size());
  }
};

// a·b + c as OpenCV computes it: its builds for ARM round once, those for x86 twice. The difference shows in one byte of a
// thousand at most, where a sum lies half-way between two values.
inline float product_sum(float a, float b, float c) {
#if defined(__aarch64__)
  return std::fma(a, b, c);
#else
  return a * b + c;  // this file is compiled without contraction
#endif
}

// Half to even, the rounding of OpenCV.
uint8_t rounded_sample(float value) { return static_cast<uint8_t>(std::clamp(std::nearbyint(value), 0.0f, 255.0f)); }

bool is_whole(double ratio) { return std::abs(ratio - std::round(ratio)) < std::numeric_limits<double>::epsilon(); }

Image shrink_whole(const Image& image, int width, int height, int across, int down) {
  Image result(width, height, image.channels);
  const auto channels = static_cast<size_t>(image.channels);
  const bool halves = across == 2 && down == 2;
  const float scale = 1.0f / static_cast<float>(across * down);
  for (int y = 0; y < height; ++y) {
    uint8_t* out = result.row(y);
    for (size_t x = 0; x < static_cast<size_t>(width); ++x) {
      for (size_t c = 0; c < channels; ++c) {
        int sum = 0;
        for (int v = 0; v < down; ++v) {
          const uint8_t* in = image.row(y * down + v) + x * static_cast<size_t>(across) * channels + c;
          for (size_t u = 0; u < static_cast<size_t>(across); ++u) sum += in[u * channels];
        }
        *out++ = halves ? static_cast<uint8_t>((sum + 2) >> 2) : rounded_sample(static_cast<float>(sum) * scale);
      }
    }
  }
  return result;
}

void add_row(const uint8_t* in, const AreaAxis& axis, size_t channels, std::vector<float>& out) {
  std::fill(out.begin(), out.end(), 0.0f);
  for (size_t x = 0; x + 1 < axis.first.size(); ++x)
    for (size_t k = axis.first[x]; k < axis.first[x + 1]; ++k) {
      const auto [from, weight] = axis.parts[k];
      for (size_t c = 0; c < channels; ++c) {
        float& sum = out[x * channels + c];
        sum = product_sum(static_cast<float>(in[from * channels + c]), weight, sum);
      }
    }
}

}  // namespace

Image shrink_by_area(const Image& image, int width, int height) {
  check(width >= 1 && height >= 1 && width <= image.width && height <= image.height,
        "an image of {}×{} pixels cannot shrink to {}×{}", image.width, image.height, width, height);
  if (width == image.width && height == image.height) return image;
  // As OpenCV computes it: the inverse of the rounded inverse.
  const double across = 1.0 / (static_cast<double>(width) / image.width);
  const double down = 1.0 / (static_cast<double>(height) / image.height);
  if (is_whole(across) && is_whole(down))
    return shrink_whole(image, width, height, static_cast<int>(std::round(across)), static_cast<int>(std::round(down)));

  const AreaAxis columns(image.width, width, across), rows(image.height, height, down);
  Image result(width, height, image.channels);
  const size_t samples = result.row_bytes();
  std::vector<float> line(samples), sum(samples);
  size_t summed = std::numeric_limits<size_t>::max();  // the input row that `line` holds: neighbours share one
  for (int y = 0; y < height; ++y) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (size_t k = rows.first[static_cast<size_t>(y)]; k < rows.first[static_cast<size_t>(y) + 1]; ++k) {
      const auto [from, weight] = rows.parts[k];
      if (from != summed) add_row(image.row(static_cast<int>(from)), columns, static_cast<size_t>(image.channels), line);
      summed = from;
      for (size_t i = 0; i < samples; ++i) sum[i] = product_sum(line[i], weight, sum[i]);
    }
    std::transform(sum.begin(), sum.end(), result.row(y), rounded_sample);
  }
  return result;
}

}  // namespace flux2
