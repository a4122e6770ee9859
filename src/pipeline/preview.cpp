#include "pipeline/preview.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/least_squares.h"
#include "image/pixels.h"
#include "ops/arithmetic.h"
#include "ops/linear.h"
#include "ops/view.h"
#include "pipeline/latents.h"

namespace flux2 {

namespace {

constexpr int kSamples = 10, kSide = 128;  // pictures and their size
constexpr int kPatch = 8;                  // pixels a latent

// Reproducible everywhere, unlike the distributions of the standard library.
class Draw {
 public:
  explicit Draw(unsigned seed) : bits_(seed) {}
  float operator()(float low, float high) { return low + (high - low) * static_cast<float>(bits_() >> 8) / 16777216.0f; }

 private:
  std::mt19937 bits_;
};

// A smooth background and a few soft-edged discs and bars, in colours of all kinds; [H, W, 3].
std::vector<float> made_up_picture(unsigned seed) {
  Draw draw(seed);
  const auto colour = [&] { return std::array{draw(-1, 1), draw(-1, 1), draw(-1, 1)}; };
  const std::array corners = {colour(), colour(), colour(), colour()};
  std::vector<float> pixels;
  for (int y = 0; y < kSide; ++y)
    for (int x = 0; x < kSide; ++x)
      for (size_t c = 0; c < 3; ++c) {
        const float u = static_cast<float>(x) / (kSide - 1), v = static_cast<float>(y) / (kSide - 1);
        pixels.push_back((1 - v) * ((1 - u) * corners[0][c] + u * corners[1][c]) +
                         v * ((1 - u) * corners[2][c] + u * corners[3][c]));
      }
  for (int shape = 0; shape < 7; ++shape) {
    const auto paint = colour();
    const float cx = draw(0, kSide), cy = draw(0, kSide), rx = draw(6, 40), ry = draw(6, 40);
    const bool bar = shape % 2 == 1;
    for (int y = 0; y < kSide; ++y)
      for (int x = 0; x < kSide; ++x) {
        const float dx = std::abs(static_cast<float>(x) - cx) / rx, dy = std::abs(static_cast<float>(y) - cy) / ry;
        const float distance = (bar ? std::max(dx, dy) : std::hypot(dx, dy)) - 1;
        const float cover = 1 / (1 + std::exp(distance * std::min(rx, ry)));
        float* p = &pixels[static_cast<size_t>(3 * (y * kSide + x))];
        for (size_t c = 0; c < 3; ++c) p[c] += cover * (paint[c] - p[c]);
      }
  }
  return pixels;
}

struct Sample {
  Tensor tokens;              // [1, I, 128]
  std::vector<float> pixels;  // [H, W, 3]
};

Sample make_sample(const Vae& vae, Session& session, unsigned seed) {
  constexpr int64_t kGrid = kSide / 16;
  if (vae.config.has_encoder) {
    Sample sample{{}, made_up_picture(seed)};
    sample.tokens = vae.encode(Tensor::from<float>(*session.stream, session.activations, {1, kSide, kSide, 3}, sample.pixels));
    return sample;
  }
  Draw draw(seed);
  std::vector<float> tokens(static_cast<size_t>(kGrid * kGrid * vae.config.packed_channels()));
  for (float& t : tokens) t = draw(-1.7f, 1.7f);  // of variance 1, like normalised latents
  const Tensor z = Tensor::from<float>(*session.stream, DType::F32, {1, kGrid * kGrid, vae.config.packed_channels()}, tokens);
  return {z, vae.decode(z, kGrid, kGrid).to_floats()};
}

std::array<double, 3> mean_of_patch(const std::vector<float>& pixels, int64_t row, int64_t column) {
  std::array<double, 3> mean{};
  for (int64_t y = row * kPatch; y < (row + 1) * kPatch; ++y)
    for (int64_t x = column * kPatch; x < (column + 1) * kPatch; ++x)
      for (size_t c = 0; c < 3; ++c) mean[c] += pixels[static_cast<size_t>(3 * (y * kSide + x)) + c] / double{kPatch * kPatch};
  return mean;
}

}  // namespace

LatentColours fit_latent_colours(const Vae& vae, Session& session) {
  constexpr int64_t kGrid = kSide / 16;
  const auto channels = static_cast<int>(vae.config.packed_channels() / 4);
  std::vector<int> columns;
  for (int c = 0; c <= channels; ++c) columns.push_back(c);  // the last is the bias
  LeastSquares fit(channels + 1, 3);
  for (unsigned k = 0; k < kSamples; ++k) {
    const Sample sample = make_sample(vae, session, k + 1);
    const std::vector<float> latents = vae.latents_of(sample.tokens, kGrid, kGrid).to_floats();
    for (int64_t row = 0; row < 2 * kGrid; ++row)
      for (int64_t column = 0; column < 2 * kGrid; ++column) {
        const auto at = static_cast<size_t>((row * 2 * kGrid + column) * channels);
        std::vector<double> values(latents.begin() + static_cast<std::ptrdiff_t>(at),
                                   latents.begin() + static_cast<std::ptrdiff_t>(at) + channels);
        values.push_back(1);
        const std::array<double, 3> target = mean_of_patch(sample.pixels, row, column);
        fit.add(columns, values, target);
      }
  }
  for (int c = 0; c < channels; ++c) fit.expect(c, 0, 1e-3);
  const auto solution = fit.solve();
  LatentColours colours;
  for (size_t c = 0; c < static_cast<size_t>(channels); ++c)
    colours.factors.push_back(
        {static_cast<float>(solution[0][c]), static_cast<float>(solution[1][c]), static_cast<float>(solution[2][c])});
  for (size_t s = 0; s < 3; ++s) colours.bias[s] = static_cast<float>(solution[s].back());
  return colours;
}

// The product runs on the device, which waits for the host between two steps: there it would take longer than all the rest.
Image linear_preview(const Vae& vae, const LatentColours& colours, const Tensor& tokens, int64_t rows, int64_t columns) {
  const Tensor latents = vae.latents_of(tokens, rows, columns).cast(DType::F32);
  const auto channels = static_cast<int64_t>(colours.factors.size());
  check(latents.dim(3) == channels, "preview: {} colours for latents of {} channels", channels, latents.dim(3));
  std::vector<float> factors;
  for (size_t s = 0; s < 3; ++s)
    for (const auto& of_channel : colours.factors) factors.push_back(of_channel[s]);
  const Tensor weight = Tensor::from<float>(tokens.stream(), DType::F32, {3, channels}, factors);
  const Tensor bias = Tensor::from<float>(tokens.stream(), DType::F32, {3}, colours.bias);
  const std::vector<float> pixels = linear(latents, weight, bias).to_floats();
  return to_rgb8(to_planes(pixels, 3), static_cast<int>(2 * rows), static_cast<int>(2 * columns), Rounding::Nearest);
}

Image decoded_preview(const Vae& vae, const Tensor& tokens, int64_t rows, int64_t columns) {
  const std::vector<float> pixels = vae.decode(tokens, rows, columns).to_floats();
  return to_rgb8(to_planes(pixels, 3), static_cast<int>(16 * rows), static_cast<int>(16 * columns), Rounding::Nearest);
}

Image tiny_preview(const TinyDecoder& decoder, Stream& stream, const Tensor& tokens, int64_t rows, int64_t columns) {
  const int64_t packed = tokens.dim(2), channels = packed / 4;
  const std::vector<float> values = tokens.to_floats();
  // Each latent covers 8 pixels. `step` × `step` of them become one.
  const int64_t step = std::max<int64_t>(1, (16 * std::max(rows, columns) + kTinyPreview - 1) / kTinyPreview);
  const int64_t height = std::max<int64_t>(1, 2 * rows / step), width = std::max<int64_t>(1, 2 * columns / step);
  std::vector<float> latents(static_cast<size_t>(height * width * channels));
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < channels; ++c) {
        float sum = 0;
        for (int64_t i = y * step; i < (y + 1) * step; ++i)
          for (int64_t j = x * step; j < (x + 1) * step; ++j)  // packed channel 4·c + 2·dy + dx
            sum += values[static_cast<size_t>((i / 2 * columns + j / 2) * packed + 4 * c + 2 * (i % 2) + j % 2)];
        latents[static_cast<size_t>((y * width + x) * channels + c)] =
            TinyDecoder::clamped(sum / static_cast<float>(step * step));
      }
  const Tensor picture = decoder(Tensor::from<float>(stream, DType::F32, {1, height, width, channels}, latents));
  const std::vector<float> pixels = picture.to_floats();
  const auto count = static_cast<size_t>(64 * height * width);
  std::vector<float> planes(3 * count);
  for (size_t i = 0; i < count; ++i)
    for (size_t s = 0; s < 3; ++s) planes[s * count + i] = 2 * pixels[3 * i + s] - 1;
  return to_rgb8(planes, static_cast<int>(8 * height), static_cast<int>(8 * width), Rounding::Nearest);
}

Tensor foreseen_picture(const StepDone& step) {
  return step.x.narrowed(0, 0, 1).contiguous() - static_cast<double>(step.sigma) * step.v.narrowed(0, 0, 1).contiguous();
}

}  // namespace flux2
