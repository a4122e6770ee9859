#pragma once

#include "base/json.h"
#include "model/decoder_config.h"
#include "model/flux2_config.h"
#include "model/vae_config.h"
#include "model/vision_config.h"

namespace flux2 {

// The vision tower beside such a language model: that of Mistral-Small-3.x, or a small one beside a small one.
VisionConfig vision_config_for(const DecoderConfig& config);

// The config.json that diffusers and transformers expect next to a component's weights.
Json transformer_config(const Flux2Config& config);
Json autoencoder_config(const VaeConfig& config);
Json text_encoder_config(const DecoderConfig& config, DType dtype);

// For the component with these weights: derived from shapes and, for text encoders, from the config.json next to them.
Json config_of(const NamedWeights& weights);

}  // namespace flux2
