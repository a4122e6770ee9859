#pragma once

#include <array>
#include <cstdint>

#include "weights/named_weights.h"

namespace flux2 {

// Widths of FLUX.2's autoencoder, one per level from the finest (0) to the coarsest (3).
struct VaeConfig {
  std::array<int64_t, 4> encoder_widths = {128, 256, 512, 512};
  std::array<int64_t, 4> decoder_widths = {128, 256, 512, 512};  // 96, 192, 384, 384 in the small decoder
  int64_t latent_channels = 32;
  bool has_encoder = true;  // a file with the decoder alone can make images but not read references

  int64_t packed_channels() const { return 4 * latent_channels; }  // 2×2 latent pixels folded into channels

  static constexpr int kEncoderBlocks = 2, kDecoderBlocks = 3;  // residual blocks per level
  static constexpr int kNormGroups = 32;                        // groups of a group norm
  static constexpr float kStatisticsEps = 1e-4f;                // of the latents' normalisation
};

// Reads the widths off the tensors. Throws Incompatible, naming what was found, for other autoencoders.
VaeConfig detect_vae(const NamedWeights& weights);

}  // namespace flux2
