#pragma once

#include <array>

#include "model/taps.h"
#include "model/vae_blocks.h"
#include "model/vae_config.h"

namespace flux2 {

// Image → latents and back. Images are [B, H, W, 3] in [−1, 1], sides multiples of 16; latents are tokens [B, (H/16)·(W/16),
// 128] in raster order, normalised per channel and always kept in F32.
struct Vae {
  explicit Vae(const VaeConfig& config);

  Tensor encode(const Tensor& picture, const Taps& taps = {},
                const BeforeBlock& before_block = {}) const;  // the distribution's mean
  // [B, H/8, W/8, 64]: mean and log variance.
  Tensor encode_moments(const Tensor& picture, const Taps& taps = {}, const BeforeBlock& before_block = {}) const;
  // → [B, H, W, 3]. The same as decode_latents(latents_of(…)).
  Tensor decode(const Tensor& tokens, int64_t rows, int64_t columns, const Taps& taps = {}) const {
    return decode_latents(latents_of(tokens, rows, columns), taps);
  }
  // The input of the decoder: tokens as [B, 2·rows, 2·columns, 32], with the normalisation undone, in the dtype of the
  // activations.
  Tensor latents_of(const Tensor& tokens, int64_t rows, int64_t columns) const;
  Tensor decode_latents(const Tensor& latents, const Taps& taps = {},
                        const BeforeBlock& before_block = {}) const;  // → [B, H, W, 3]

  void visit(const ParameterVisitor& visitor);

  VaeConfig config;

  struct Encoder {
    Conv conv_in;
    std::array<Level, 4> down;
    MidBlock mid;
    GroupNorm norm_out;
    Conv conv_out, quant_conv;
  } encoder;

  struct Decoder {
    Conv post_quant_conv, conv_in;
    MidBlock mid;
    std::array<Level, 4> up;
    GroupNorm norm_out;
    Conv conv_out;
  } decoder;

  Tensor running_mean, running_var;  // [128], statistics of the packed latents
};

// [B, 2h, 2w, c] → [B, h, w, 4c]: channel i of pixel (dy, dx) of each 2×2 square becomes channel 4·i + 2·dy + dx. And back.
Tensor patchify(const Tensor& latents);
Tensor unpatchify(const Tensor& packed);

}  // namespace flux2
