#include "pipeline/noise.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace flux2 {

std::string NoiseSource::name() const {
  switch (kind) {
    case TorchCpu: return "torch-cpu";
    case TorchCuda: return fmt::format("torch-cuda:{}x{}", gpu.multiprocessors, gpu.threads_per_multiprocessor);
    case Grid: return "grid";
  }
  return {};
}

NoiseSource NoiseSource::on(const Device& device) const {
  NoiseSource source = *this;
  if (gpu_in_use) source.gpu = device.random_geometry().value_or(gpu);
  return source;
}

NoiseSource parse_noise(std::string_view text) {
  if (text == "torch-cpu") return {};
  if (text == "grid") return {.kind = NoiseSource::Grid};
  if (text == "torch-cuda") return {.kind = NoiseSource::TorchCuda, .gpu_in_use = true};
  constexpr std::string_view kPrefix = "torch-cuda:";
  if (text.starts_with(kPrefix)) {
    NoiseSource source{.kind = NoiseSource::TorchCuda};
    const std::string_view numbers = text.substr(kPrefix.size());
    const char* end = numbers.data() + numbers.size();
    auto [middle, first] = std::from_chars(numbers.data(), end, source.gpu.multiprocessors);
    if (first == std::errc() && middle < end && *middle == 'x') {
      auto [last, second] = std::from_chars(middle + 1, end, source.gpu.threads_per_multiprocessor);
      if (second == std::errc() && last == end && source.gpu.multiprocessors > 0 && source.gpu.multiprocessors < 100000 &&
          source.gpu.threads_per_multiprocessor >= 256 && source.gpu.threads_per_multiprocessor <= 65536)
        return source;
    }
  }
  fail(ErrorCode::InvalidArgument,
       "noise \"{}\" is not one of torch-cpu, torch-cuda, torch-cuda:SMSxTHREADS (like 132x2048), grid", text);
}

std::string Variation::text() const { return fmt::format("{}:{}", seed, strength); }

Variation parse_variation(std::string_view text) {
  Variation variation;
  const char* end = text.data() + text.size();
  const auto [colon, first] = std::from_chars(text.data(), end, variation.seed);
  if (first == std::errc() && colon < end && *colon == ':') {
    const auto [last, second] = std::from_chars(colon + 1, end, variation.strength);
    constexpr uint64_t kLargestSeed = (uint64_t{1} << 63) - 1;
    if (second == std::errc() && last == end && variation.strength >= 0 && variation.strength <= 1 &&
        variation.seed <= kLargestSeed)
      return variation;
  }
  fail(ErrorCode::InvalidArgument, "\"{}\" is not a variation; write SEED:STRENGTH with a strength from 0 to 1, like 7:0.2",
       text);
}

void mix_noise(std::vector<float>& noise, const std::vector<float>& other, double strength) {
  require(noise.size() == other.size(), "noise of {} and {} values", noise.size(), other.size());
  if (strength == 0) return;
  if (strength == 1) {
    noise = other;
    return;
  }
  double product = 0, first = 0, second = 0;
  for (size_t i = 0; i < noise.size(); ++i) {
    const double a = noise[i], b = other[i];
    product += a * b, first += a * a, second += b * b;
  }
  const double cosine = first > 0 && second > 0 ? std::clamp(product / std::sqrt(first * second), -1.0, 1.0) : 1.0;
  const double angle = std::acos(cosine), sine = std::sin(angle);
  // Noise of almost the same or the opposite direction has no arc between: a straight line then.
  const bool has_arc = sine > 1e-6;
  const double a = has_arc ? std::sin((1 - strength) * angle) / sine : 1 - strength;
  const double b = has_arc ? std::sin(strength * angle) / sine : strength;
  for (size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<float>(a * noise[i] + b * other[i]);
}

namespace {

std::vector<float> grid_noise(uint64_t seed, int64_t channels, int64_t rows, int64_t columns) {
  std::vector<float> noise(static_cast<size_t>(channels * rows * columns));
  for (int64_t y = 0; y < rows; ++y)
    for (int64_t x = 0; x < columns; ++x) {
      // Offsets from the centre, biased to stay positive; together they number the token.
      const auto row = static_cast<uint64_t>(y - rows / 2 + (1 << 20)),
                 column = static_cast<uint64_t>(x - columns / 2 + (1 << 20));
      for (int64_t c = 0; c < channels; c += 2) {
        const auto words = philox(seed, static_cast<uint64_t>(c), (row << 32) | column);
        const double u = (static_cast<double>(words[0]) + 0.5) * 0x1p-32, v = (static_cast<double>(words[1]) + 0.5) * 0x1p-32;
        const double r = std::sqrt(-2.0 * std::log(u)), angle = 2.0 * M_PI * v;
        const auto at = [&](int64_t channel) -> float& { return noise[static_cast<size_t>((channel * rows + y) * columns + x)]; };
        at(c) = static_cast<float>(r * std::cos(angle));
        if (c + 1 < channels) at(c + 1) = static_cast<float>(r * std::sin(angle));
      }
    }
  return noise;
}

}  // namespace

std::vector<float> make_noise(const NoiseSource& source, uint64_t seed, int64_t channels, int64_t rows, int64_t columns,
                              Stream* stream) {
  if (source.kind == NoiseSource::Grid) return grid_noise(seed, channels, rows, columns);
  if (source.kind == NoiseSource::TorchCuda && stream && stream->device().kernels().torch_normal) {
    const Tensor drawn = Tensor::empty(*stream, DType::F32, {channels, rows, columns});
    stream->device().kernels().torch_normal({drawn, seed, source.gpu});
    return drawn.to_floats();
  }
  std::vector<float> noise(static_cast<size_t>(channels * rows * columns));
  if (source.kind == NoiseSource::TorchCpu) torch_cpu_normal(seed, noise);
  else torch_cuda_normal(seed, source.gpu, noise);
  return noise;
}

}  // namespace flux2
