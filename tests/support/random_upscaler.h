#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "model/upscaler.h"
#include "weights/safetensors_writer.h"

namespace flux2::test {

// The tensors of an upscaler with values that a trained one might have: the layers outside the blocks keep the size of what
// passes through them, the blocks change it a little.
inline std::vector<std::pair<std::string, Tensor>> random_upscaler_tensors(const UpscalerConfig& config, uint32_t seed = 1) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  uint32_t state = seed * 2654435761u + 1;
  for (const auto& [name, shape] : upscaler_tensors(config)) {
    const float spread = shape.rank() == 4 ? 1.7f / std::sqrt(static_cast<float>(9 * shape[1])) : 0.02f;
    const float middle = shape == Shape{3} ? 0.5f : 0.0f;  // the last bias: the image is grey on average
    std::vector<float> values(static_cast<size_t>(shape.numel()));
    for (float& v : values)
      v = middle + spread * (static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1.0f);
    tensors.emplace_back(name, Tensor::host_copy(values.data(), DType::F32, shape));
  }
  return tensors;
}

// The same as a file.
inline std::filesystem::path write_random_upscaler(const std::filesystem::path& path, const UpscalerConfig& config,
                                                   uint32_t seed = 1) {
  std::filesystem::create_directories(path.parent_path());
  save_tensors(path, random_upscaler_tensors(config, seed));
  return path;
}

}  // namespace flux2::test
