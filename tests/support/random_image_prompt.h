#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "hub/synth_clip.h"
#include "model/image_prompt.h"
#include "weights/safetensors_writer.h"

namespace flux2::test {

// The geometry of an adapter for the bundled model that reads the vectors of clip-tiny.
inline ImagePromptConfig pico_image_prompt(ImagePromptForm form = ImagePromptForm::Decoupled) {
  ImagePromptConfig config;
  config.feature_width = synthetic_clip("clip-tiny")->hidden;
  config.hidden = 256;
  config.double_blocks = form == ImagePromptForm::Decoupled ? 2 : 0;
  config.form = form;
  config.encoder = "clip-tiny";
  return config;
}

// An image-prompt adapter with random values of the size that a trained one might have.
inline std::filesystem::path write_random_image_prompt(const std::filesystem::path& path, const ImagePromptConfig& config,
                                                       uint32_t seed = 1) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  uint32_t state = seed * 2654435761u + 1;
  ImagePromptNetwork(config).visit([&](const Parameter& p) {
    const float spread = p.shape.rank() == 2 ? std::sqrt(3.0f / static_cast<float>(p.shape[1])) : 0.1f;
    const float middle = p.name.ends_with("norm.weight") ? 1.0f : 0.0f;
    std::vector<float> values(static_cast<size_t>(p.shape.numel()));
    for (float& v : values)
      v = middle + spread * (static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1.0f);
    tensors.emplace_back(p.name, Tensor::host_copy(values.data(), DType::F32, p.shape));
  });
  std::filesystem::create_directories(path.parent_path());
  save_tensors(path, tensors, {{kImagePromptMetadata, config.metadata()}});
  return path;
}

}  // namespace flux2::test
