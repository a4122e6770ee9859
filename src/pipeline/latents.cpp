#include "pipeline/latents.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "model/vae.h"
#include "ops/arithmetic.h"

namespace flux2 {

namespace {

std::vector<float> transposed(const std::vector<float>& x, size_t rows, size_t columns) {
  check(x.size() == rows * columns, "{} values are not {} × {}", x.size(), rows, columns);
  std::vector<float> y(x.size());
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < columns; ++c) y[c * rows + r] = x[r * columns + c];
  return y;
}

// What each of the `to` outputs of a line takes from its inputs: the first of four and their weights (Catmull-Rom, centres of
// pixels aligned). Beyond an end of the line its last value continues.
struct Taps4 {
  int64_t first;
  std::array<float, 4> weights;
};

std::vector<Taps4> cubic_taps(int64_t from, int64_t to) {
  const auto cubic = [](double x) {
    x = std::abs(x);
    return x < 1 ? (1.5 * x - 2.5) * x * x + 1 : ((-0.5 * x + 2.5) * x - 4) * x + 2;
  };
  std::vector<Taps4> taps;
  for (int64_t i = 0; i < to; ++i) {
    const double at = (static_cast<double>(i) + 0.5) * static_cast<double>(from) / static_cast<double>(to) - 0.5;
    Taps4 tap{static_cast<int64_t>(std::floor(at)) - 1, {}};
    for (int64_t k = 0; k < 4; ++k)
      tap.weights[static_cast<size_t>(k)] = static_cast<float>(cubic(at - static_cast<double>(tap.first + k)));
    taps.push_back(tap);
  }
  return taps;
}

// One plane [height, width] at another size.
std::vector<float> enlarged_plane(const std::vector<float>& plane, int64_t height, int64_t width, int64_t to_height,
                                  int64_t to_width) {
  const auto across = cubic_taps(width, to_width), down = cubic_taps(height, to_height);
  const auto clamped = [](int64_t i, int64_t count) { return std::clamp<int64_t>(i, 0, count - 1); };
  std::vector<float> wide(static_cast<size_t>(height * to_width)), out(static_cast<size_t>(to_height * to_width));
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < to_width; ++x) {
      const Taps4& tap = across[static_cast<size_t>(x)];
      float sum = 0;
      for (int64_t k = 0; k < 4; ++k)
        sum += tap.weights[static_cast<size_t>(k)] * plane[static_cast<size_t>(y * width + clamped(tap.first + k, width))];
      wide[static_cast<size_t>(y * to_width + x)] = sum;
    }
  for (int64_t y = 0; y < to_height; ++y)
    for (int64_t x = 0; x < to_width; ++x) {
      const Taps4& tap = down[static_cast<size_t>(y)];
      float sum = 0;
      for (int64_t k = 0; k < 4; ++k)
        sum += tap.weights[static_cast<size_t>(k)] * wide[static_cast<size_t>(clamped(tap.first + k, height) * to_width + x)];
      out[static_cast<size_t>(y * to_width + x)] = sum;
    }
  return out;
}

}  // namespace

std::vector<float> encoded_images(const Vae& vae, Stream& stream, DType activations, const std::vector<Image>& images) {
  require(!images.empty(), "no image to encode");
  const Shape shape{static_cast<int64_t>(images.size()), images[0].height, images[0].width, 3};
  // The device turns bytes into −1 … 1: for tens of thousands of images that takes the host longer than drawing them.
  std::vector<uint8_t> bytes;
  bytes.reserve(static_cast<size_t>(shape.numel()));
  for (const Image& image : images) bytes.insert(bytes.end(), image.pixels.begin(), image.pixels.end());
  require(static_cast<int64_t>(bytes.size()) == shape.numel(), "images of different sizes");
  const Tensor pixels = Tensor::host_copy(bytes.data(), DType::U8, shape).to(stream).cast(DType::F32);
  const Tensor tokens = vae.encode((-1.0 + (1.0 / 127.5) * pixels).cast(activations));  // [images, rows · columns, 128]
  return tokens.permuted(std::array{0, 2, 1}).contiguous().to_floats();
}

std::vector<float> enlarged_latents(const Vae& vae, const std::vector<float>& latents, int64_t rows, int64_t columns,
                                    int64_t to_rows, int64_t to_columns) {
  const int64_t packed = vae.config.packed_channels();
  check(static_cast<int64_t>(latents.size()) == packed * rows * columns, "{} latents are not {} × {} × {}", latents.size(),
        packed, rows, columns);
  const std::vector<float> mean = vae.running_mean.to_floats(), variance = vae.running_var.to_floats();
  std::vector<float> out(static_cast<size_t>(packed * to_rows * to_columns));
  // Packed channel 4·c + 2·dy + dx at (y, x) is channel c of the latents at (2·y + dy, 2·x + dx).
  for (int64_t c = 0; c < packed / 4; ++c) {
    std::vector<float> plane(static_cast<size_t>(4 * rows * columns));
    for (int64_t k = 0; k < 4; ++k) {
      const auto channel = static_cast<size_t>(4 * c + k);
      const float deviation = std::sqrt(variance[channel] + VaeConfig::kStatisticsEps);
      for (int64_t y = 0; y < rows; ++y)
        for (int64_t x = 0; x < columns; ++x)
          plane[static_cast<size_t>((2 * y + k / 2) * 2 * columns + 2 * x + k % 2)] =
              latents[channel * static_cast<size_t>(rows * columns) + static_cast<size_t>(y * columns + x)] * deviation +
              mean[channel];
    }
    plane = enlarged_plane(plane, 2 * rows, 2 * columns, 2 * to_rows, 2 * to_columns);
    for (int64_t k = 0; k < 4; ++k) {
      const auto channel = static_cast<size_t>(4 * c + k);
      const float deviation = std::sqrt(variance[channel] + VaeConfig::kStatisticsEps);
      for (int64_t y = 0; y < to_rows; ++y)
        for (int64_t x = 0; x < to_columns; ++x)
          out[channel * static_cast<size_t>(to_rows * to_columns) + static_cast<size_t>(y * to_columns + x)] =
              (plane[static_cast<size_t>((2 * y + k / 2) * 2 * to_columns + 2 * x + k % 2)] - mean[channel]) / deviation;
    }
  }
  return out;
}

std::vector<float> to_tokens(const std::vector<float>& planes, int64_t channels) {
  return transposed(planes, static_cast<size_t>(channels), planes.size() / static_cast<size_t>(channels));
}

std::vector<float> to_planes(const std::vector<float>& tokens, int64_t channels) {
  return transposed(tokens, tokens.size() / static_cast<size_t>(channels), static_cast<size_t>(channels));
}

std::vector<TokenPosition> text_positions(int64_t length) {
  std::vector<TokenPosition> p(static_cast<size_t>(length));
  for (int64_t l = 0; l < length; ++l) p[static_cast<size_t>(l)].l = static_cast<int32_t>(l);
  return p;
}

std::vector<TokenPosition> picture_positions(int64_t rows, int64_t columns, int32_t t) {
  std::vector<TokenPosition> p;
  p.reserve(static_cast<size_t>(rows * columns));
  for (int64_t y = 0; y < rows; ++y)
    for (int64_t x = 0; x < columns; ++x) p.push_back({t, static_cast<int32_t>(y), static_cast<int32_t>(x), 0});
  return p;
}

std::vector<TokenPosition> image_prompt_positions(int64_t references, int64_t images, int64_t tokens) {
  std::vector<TokenPosition> positions;
  for (int64_t image = 0; image < images; ++image)
    for (int64_t k = 0; k < tokens; ++k)
      positions.push_back({.t = static_cast<int32_t>(10 * (references + image + 1)), .w = static_cast<int32_t>(k)});
  return positions;
}

}  // namespace flux2
