#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "model/vit_classifier.h"
#include "weights/safetensors_writer.h"

namespace flux2::test {

inline VitConfig tiny_vit_config() {
  VitConfig c;
  c.hidden = 16, c.intermediate = 32, c.layers = 2, c.heads = 2, c.image = 32, c.patch = 8;
  return c;
}

// Random tensors, except that the last layer ignores the image: its bias alone decides. `nsfw` is the logit of the class nsfw,
// that of the class normal is 0, so the score is 1 / (1 + exp(−nsfw)).
inline std::vector<std::pair<std::string, Tensor>> tiny_classifier_tensors(const VitConfig& config, float nsfw,
                                                                           uint32_t seed = 1) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  uint32_t state = seed * 2654435761u + 1;
  VitClassifier network(config);
  network.visit([&](const Parameter& p) {
    std::vector<float> values(static_cast<size_t>(p.shape.numel()));
    for (float& v : values) v = 0.2f * (static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1.0f);
    if (p.name == "classifier.weight") std::fill(values.begin(), values.end(), 0.0f);
    if (p.name == "classifier.bias") values = {0.0f, nsfw};
    tensors.emplace_back(p.name, Tensor::host_copy(values.data(), DType::F32, p.shape));
  });
  return tensors;
}

// The same as a folder: model.safetensors and config.json, as the published classifier has them.
inline std::filesystem::path write_tiny_classifier(const std::filesystem::path& folder, float nsfw) {
  std::filesystem::create_directories(folder);
  const VitConfig config = tiny_vit_config();
  save_tensors(folder / "model.safetensors", tiny_classifier_tensors(config, nsfw));
  std::ofstream(folder / "config.json")
      << R"({"num_attention_heads": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu", "id2label": {"0": "normal", "1": "nsfw"}})";
  std::ofstream(folder / "preprocessor_config.json")
      << R"({"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "resample": 2, "size": {"height": 32, "width": 32}})";
  return folder;
}

constexpr float kFlagged = 6, kClean = -6;  // scores 0.9975 and 0.0025

}  // namespace flux2::test
