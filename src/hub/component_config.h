#pragma once

#include "base/json.h"
#include "model/decoder_config.h"
#include "model/flux2_config.h"
#include "model/vae_config.h"

namespace flux2 {

// The config.json that diffusers and transformers expect next to a component's weights.
Json transformer_config(const Flux2Config& config);
Json autoencoder_config(const VaeConfig& config);
Json text_encoder_config(const DecoderConfig& config, DType dtype);

// For the component with these weights: derived from shapes and, for text encoders, from the config.json next to them.
Json config_of(const NamedWeights& weights);

}  // namespace flux2
