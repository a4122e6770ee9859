#pragma once

#include <cmath>
#include <random>
#include <span>
#include <string>

#include "image/image.h"

namespace flux2 {

// A smooth image with some noise: lossy formats keep it close, lossless ones cannot cheat.
inline Image test_image(int width, int height, int channels, unsigned seed = 1) {
  Image image(width, height, channels);
  std::mt19937 random(seed);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const double wave = 128 + 90 * std::sin(0.11 * x + c) * std::cos(0.07 * y - c);
        image.at(x, y)[c] = static_cast<uint8_t>(wave + static_cast<double>(random() % 9));
      }
    }
  }
  return image;
}

inline double mean_difference(const Image& a, const Image& b) {
  double sum = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) sum += std::abs(a.pixels[i] - b.pixels[i]);
  return sum / static_cast<double>(a.pixels.size());
}

inline std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace flux2
