#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "weights/named_weights.h"

namespace flux2 {

// Widths of FLUX.2's autoencoder, one per level from the finest (0) to the coarsest (3).
struct VaeConfig {
  std::array<int64_t, 4> encoder_widths = {128, 256, 512, 512};
  std::array<int64_t, 4> decoder_widths = {128, 256, 512, 512};  // 96, 192, 384, 384 in the small decoder
  int64_t latent_channels = 32;
  int norm_groups = 32;     // of every group norm; a file with another number says so in its metadata
  bool has_encoder = true;  // a file with the decoder alone can make images but not read references

  int64_t packed_channels() const { return 4 * latent_channels; }  // 2×2 latent pixels folded into channels

  static constexpr int kEncoderBlocks = 2, kDecoderBlocks = 3;  // residual blocks per level
  static constexpr float kStatisticsEps = 1e-4f;                // of the latents' normalisation
};

// Metadata of a weights file. FLUX.2 has 128 channels in the finest level, so four in a group. A small autoencoder needs fewer
// groups: with one channel in a group, a norm removes the very colour of an image.
constexpr const char* kNormGroupsKey = "flux2.norm_groups";
std::map<std::string, std::string> vae_metadata(const VaeConfig& config);  // nothing for 32 groups

// Reads the widths off the tensors. Throws Incompatible, naming what was found, for other autoencoders.
VaeConfig detect_vae(const NamedWeights& weights);

}  // namespace flux2
