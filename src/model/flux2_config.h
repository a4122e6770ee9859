#pragma once

#include <cstdint>
#include <string>

#include "weights/named_weights.h"

namespace flux2 {

// The geometry of a FLUX.2 transformer. Defaults that never differ between published files are constants below.
struct Flux2Config {
  int64_t hidden = 3072;       // H, a multiple of the head width
  int64_t double_blocks = 5;   // D
  int64_t single_blocks = 20;  // S
  int64_t text_width = 7680;   // Cctx: three states of the text encoder side by side
  int64_t channels = 128;      // latent channels in and out
  bool guidance = false;       // dev: the guidance value is an input

  int64_t heads() const { return hidden / kHeadDim; }
  int64_t mlp() const { return 3 * hidden; }  // M
  std::string name() const;                   // "klein 4B", "klein 9B", "dev" or the numbers

  bool operator==(const Flux2Config&) const = default;

  static constexpr int64_t kHeadDim = 128;
};

Flux2Config klein_4b_config();
Flux2Config klein_9b_config();
Flux2Config dev_config();

// Reads the geometry off the tensors. Throws Incompatible with the reason when they are not FLUX.2's.
Flux2Config detect_flux2(const NamedWeights& weights);

}  // namespace flux2
