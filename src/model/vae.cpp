#include "model/vae.h"

#include <fmt/format.h>

#include <cmath>

#include "ops/arithmetic.h"
#include "ops/view.h"

namespace flux2 {

Vae::Vae(const VaeConfig& c) : config(c) {
  const int groups = c.norm_groups;
  const auto& e = c.encoder_widths;
  encoder.conv_in = conv3x3(3, e[0]);
  for (size_t i = 0; i < 4; ++i) {
    for (int b = 0; b < VaeConfig::kEncoderBlocks; ++b)
      encoder.down[i].blocks.emplace_back(b == 0 && i > 0 ? e[i - 1] : e[i], e[i], groups);
    // Stride 2 with zeros on the right and below only: output (y, x) reads rows 2y…2y+2.
    if (i < 3) encoder.down[i].resample = Conv(e[i], e[i], 3, 2, {.bottom = 1, .right = 1});
  }
  encoder.mid = MidBlock(e[3], groups);
  encoder.norm_out = GroupNorm(e[3], groups);
  encoder.conv_out = conv3x3(e[3], 2 * c.latent_channels);
  encoder.quant_conv = conv1x1(2 * c.latent_channels, 2 * c.latent_channels);

  const auto& d = c.decoder_widths;
  decoder.post_quant_conv = conv1x1(c.latent_channels, c.latent_channels);
  decoder.conv_in = conv3x3(c.latent_channels, d[3]);
  decoder.mid = MidBlock(d[3], groups);
  for (size_t i = 0; i < 4; ++i) {
    for (int b = 0; b < VaeConfig::kDecoderBlocks; ++b)
      decoder.up[i].blocks.emplace_back(b == 0 && i < 3 ? d[i + 1] : d[i], d[i], groups);
    if (i > 0) decoder.up[i].resample = conv3x3(d[i], d[i]);
  }
  decoder.norm_out = GroupNorm(d[0], groups);
  decoder.conv_out = conv3x3(d[0], 3);
}

Tensor patchify(const Tensor& x) {
  const int64_t b = x.dim(0), h = x.dim(1) / 2, w = x.dim(2) / 2, c = x.dim(3);
  return reshape(contiguous(permute(reshape(x, {b, h, 2, w, 2, c}), {0, 1, 3, 5, 2, 4})), {b, h, w, 4 * c});
}

Tensor unpatchify(const Tensor& x) {
  const int64_t b = x.dim(0), h = x.dim(1), w = x.dim(2), c = x.dim(3) / 4;
  return reshape(contiguous(permute(reshape(x, {b, h, w, c, 2, 2}), {0, 1, 4, 2, 5, 3})), {b, 2 * h, 2 * w, c});
}

namespace {

// sqrt(var + eps) of a tiny vector, or its inverse: computed on the host in double.
Tensor deviation(const Tensor& variance, bool inverse) {
  std::vector<double> values = variance.to_doubles();
  for (double& v : values) {
    v = std::sqrt(v + static_cast<double>(VaeConfig::kStatisticsEps));
    if (inverse) v = 1.0 / v;
  }
  return Tensor::from<double>(variance.stream(), variance.dtype(), variance.shape(), values);
}

}  // namespace

Tensor Vae::encode_moments(const Tensor& picture, const Taps& taps, const BeforeBlock& before_block) const {
  check(config.has_encoder, "this autoencoder file has only the decoder; reading images needs the encoder");
  check(picture.rank() == 4 && picture.dim(1) % 16 == 0 && picture.dim(2) % 16 == 0,
        "the sides of images to encode must be multiples of 16, not {}", picture.shape());
  Tensor x = encoder.conv_in(picture);
  tap(taps, "encoder.conv_in", x);
  for (size_t i = 0; i < 4; ++i) {
    for (const ResBlock& block : encoder.down[i].blocks) {
      if (before_block) before_block();
      x = block(x);
    }
    tap(taps, fmt::format("encoder.down.{}", i), x);
    if (encoder.down[i].resample.in) x = encoder.down[i].resample(x);
  }
  if (before_block) before_block();
  x = encoder.mid.attn_1(encoder.mid.block_1(x));
  tap(taps, "encoder.mid.attn_1", x);
  x = encoder.conv_out(encoder.norm_out.then_silu(encoder.mid.block_2(x)));
  tap(taps, "encoder.conv_out", x);
  x = encoder.quant_conv(x);
  tap(taps, "encoder.moments", x);
  return x;
}

Tensor Vae::encode(const Tensor& picture, const Taps& taps, const BeforeBlock& before_block) const {
  const Tensor moments = encode_moments(picture, taps, before_block);
  const Tensor packed = cast(patchify(narrow(moments, 3, 0, config.latent_channels)), DType::F32);
  const Tensor normalised = (packed - running_mean) * deviation(running_var, true);
  return reshape(normalised, {packed.dim(0), packed.dim(1) * packed.dim(2), packed.dim(3)});
}

Tensor Vae::latents_of(const Tensor& tokens, int64_t rows, int64_t columns) const {
  check(tokens.rank() == 3 && tokens.dim(1) == rows * columns && tokens.dim(2) == config.packed_channels(),
        "decode: tokens {} for a grid of {}×{}", tokens.shape(), rows, columns);
  const Tensor packed = cast(reshape(tokens, {tokens.dim(0), rows, columns, tokens.dim(2)}), DType::F32);
  return cast(unpatchify(packed * deviation(running_var, false) + running_mean), decoder.conv_in.bias.dtype());
}

Tensor Vae::decode_latents(const Tensor& latents, const Taps& taps, const BeforeBlock& before_block) const {
  if (before_block) before_block();
  Tensor x = decoder.conv_in(decoder.post_quant_conv(latents));
  tap(taps, "decoder.conv_in", x);
  x = decoder.mid.attn_1(decoder.mid.block_1(x));
  tap(taps, "decoder.mid.attn_1", x);
  x = decoder.mid.block_2(x);
  tap(taps, "decoder.mid", x);
  for (size_t i = 4; i-- > 0;) {
    for (const ResBlock& block : decoder.up[i].blocks) {
      if (before_block) before_block();
      x = block(x);
    }
    tap(taps, fmt::format("decoder.up.{}", i), x);
    if (decoder.up[i].resample.in) x = decoder.up[i].resample.upsampled(x);
  }
  return decoder.conv_out(decoder.norm_out.then_silu(x));
}

void Vae::visit(const ParameterVisitor& v) {
  if (config.has_encoder) {
    encoder.conv_in.visit("encoder.conv_in", v);
    for (size_t i = 0; i < 4; ++i) encoder.down[i].visit(fmt::format("encoder.down.{}.", i), "downsample.conv", v);
    encoder.mid.visit("encoder.mid.", v);
    encoder.norm_out.visit("encoder.norm_out", v);
    encoder.conv_out.visit("encoder.conv_out", v);
    encoder.quant_conv.visit("encoder.quant_conv", v);
  }
  decoder.post_quant_conv.visit("decoder.post_quant_conv", v);
  decoder.conv_in.visit("decoder.conv_in", v);
  decoder.mid.visit("decoder.mid.", v);
  for (size_t i = 0; i < 4; ++i) decoder.up[i].visit(fmt::format("decoder.up.{}.", i), "upsample.conv", v);
  decoder.norm_out.visit("decoder.norm_out", v);
  decoder.conv_out.visit("decoder.conv_out", v);
  v({"bn.running_mean", running_mean, {config.packed_channels()}, ParameterKind::Statistic, kWhole});
  v({"bn.running_var", running_var, {config.packed_channels()}, ParameterKind::Statistic, kWhole});
}

}  // namespace flux2
