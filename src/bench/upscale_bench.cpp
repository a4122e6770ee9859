#include "bench/upscale_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "engine/upscaling.h"

namespace flux2 {

namespace {

// Random weights under the names of a file. The tensors must outlive the source.
WeightSource random_weights(const UpscalerConfig& config, std::vector<std::vector<float>>& memory) {
  std::vector<StoredTensor> stored;
  uint32_t state = 1;
  for (const auto& [name, shape] : upscaler_tensors(config)) {
    const float spread = shape.rank() == 4 ? 1 / std::sqrt(static_cast<float>(9 * shape[1])) : 0.0f;
    std::vector<float>& values = memory.emplace_back(static_cast<size_t>(shape.numel()));
    for (float& v : values) v = spread * (static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1.0f);
    stored.push_back(
        {.name = name, .dtype_name = "F32", .dtype = DType::F32, .shape = shape, .bytes = std::as_bytes(std::span(values))});
  }
  return {std::move(stored), {}, "random weights"};
}

double flop_of(const UpscalerConfig& c, double pixels) {
  double products = 0;  // per pixel of the features
  for (const auto& [name, shape] : upscaler_tensors(c))
    if (shape.rank() == 4) {
      const bool at_twice = name.ends_with("conv_up1.weight"), at_four = name.ends_with("conv_up2.weight") ||
                                                                         name.ends_with("conv_hr.weight") ||
                                                                         name.ends_with("conv_last.weight");
      products += static_cast<double>(shape.numel()) * (at_four ? 16 : at_twice ? 4 : 1);
    }
  return 2 * products * pixels / (c.fold() * c.fold());
}

}  // namespace

UpscaleBenchResult bench_upscale(const EngineOptions& engine_options, const UpscaleBenchOptions& options) {
  check(options.repeats > 0, "at least one pass is needed");
  require(!options.network.older_names, "the operations are counted by the newer names");
  const Engine engine(engine_options);
  std::vector<std::vector<float>> memory;
  memory.reserve(upscaler_tensors(options.network).size());
  const LoadedUpscaler upscaler(engine, random_weights(options.network, memory));
  Image image(options.width, options.height, 3);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i * 2654435761u >> 24);
  const EnlargeOptions how{.tile = upscaler.usual_tile()};
  std::vector<double> times;
  const int warm_up = engine.device().is_host() ? 0 : 1;  // a GPU chooses its algorithms in the first pass
  for (int i = 0; i < options.repeats + warm_up; ++i) {
    const auto start = std::chrono::steady_clock::now();
    upscaler.enlarge(image, how);
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  times.erase(times.begin(), times.begin() + warm_up);
  std::sort(times.begin(), times.end());
  return {.seconds = times[times.size() / 2],
          .fastest = times.front(),
          .slowest = times.back(),
          .flop = flop_of(options.network, static_cast<double>(options.width) * options.height),
          .peak_bytes = upscaler.peak_bytes()};
}

}  // namespace flux2
