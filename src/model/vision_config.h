#pragma once

#include <cstdint>

#include "model/decoder_config.h"
#include "weights/named_weights.h"

namespace flux2 {

// The geometry of Pixtral's tower and of the projector behind it, which turn an image into tokens of Mistral's language model.
// The values are those of Mistral-Small-3.x.
struct VisionConfig {
  int64_t hidden = 1024, intermediate = 4096, layers = 24, heads = 16;
  int64_t image = 1540, patch = 14, merge = 2;  // longest side of an image; side of a patch; a token is merge² patches
  double rope_theta = 10000;
  int64_t text_hidden = 5120;           // of the language model
  float projector_eps = 1e-5f;          // that of the language model
  static constexpr float kEps = 1e-5f;  // of the tower's norms

  int64_t head_dim() const { return hidden / heads; }
  bool operator==(const VisionConfig&) const = default;
};

// Whether the weights of a language model come with a vision tower and its projector.
bool has_vision(const NamedWeights& weights);

// Reads the geometry from the tensors and from the vision_config of the config.json next to them. Throws Incompatible if there is
// no vision tower, or if it works differently.
VisionConfig detect_vision(const NamedWeights& weights, const DecoderConfig& text);

}  // namespace flux2
