#pragma once

#include "base/json.h"
#include "model/decoder_config.h"
#include "model/flux2_config.h"
#include "model/vae_config.h"

namespace flux2 {

// The sizes of the Pixtral tower beside Mistral's language model; those of Mistral-Small-3.x unless they say otherwise.
struct VisionConfig {
  int64_t hidden = 1024, intermediate = 4096, layers = 24, heads = 16;
  int64_t image = 1540, patch = 14, merge = 2;
};
VisionConfig vision_config_for(const DecoderConfig& config);

// The config.json that diffusers and transformers expect next to a component's weights.
Json transformer_config(const Flux2Config& config);
Json autoencoder_config(const VaeConfig& config);
Json text_encoder_config(const DecoderConfig& config, DType dtype);

// For the component with these weights: derived from shapes and, for text encoders, from the config.json next to them.
Json config_of(const NamedWeights& weights);

}  // namespace flux2
