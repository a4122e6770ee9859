#include "model/vae_config.h"

#include <fmt/format.h>

#include <string>

#include "base/number_from_text.h"
#include "nn/load.h"

namespace flux2 {

std::map<std::string, std::string> vae_metadata(const VaeConfig& config) {
  if (config.norm_groups == VaeConfig().norm_groups) return {};
  return {{kNormGroupsKey, std::to_string(config.norm_groups)}};
}

VaeConfig detect_vae(const NamedWeights& weights) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::Incompatible, fmt::format("{}: {}", weights.source().description(), what),
                "use ae.safetensors of FLUX.2 (or vae/diffusion_pytorch_model.safetensors of a klein repository)");
  };
  const auto rows = [&](const std::string& name) -> int64_t {
    if (!weights.has(name)) refuse("this is not a FLUX.2 autoencoder: it has no " + name);
    const Shape shape = weights.shape(name);
    if (shape.rank() == 5) refuse(fmt::format("{} has shape {}: a video autoencoder is not supported", name, shape));
    return config_shape(weights, name, 4)[0];
  };
  VaeConfig c;
  rows("decoder.conv_in.weight");
  c.latent_channels = weights.shape("decoder.conv_in.weight")[1];
  if (c.latent_channels != 32)
    refuse(fmt::format("decoder.conv_in.weight takes {} latent channels; FLUX.2 needs 32{}", c.latent_channels,
                       c.latent_channels == 16  ? " (this is a FLUX.1 or SD3 autoencoder)"
                       : c.latent_channels == 4 ? " (this is an SD or SDXL autoencoder)"
                                                : ""));
  if (!weights.has("bn.running_mean") || !weights.has("bn.running_var"))
    refuse("the latent statistics bn.running_mean and bn.running_var are missing, without which latents cannot be scaled");

  c.has_encoder = weights.has("encoder.conv_in.weight");
  if (const auto stated = weights.source().metadata().find(kNormGroupsKey); stated != weights.source().metadata().end()) {
    const auto groups = number_from_text<int>(stated->second);
    if (!groups || *groups < 1)
      refuse(fmt::format("{} is \"{}\", which is not a number of groups", kNormGroupsKey, stated->second));
    c.norm_groups = *groups;
  }
  // A group norm divides the channels into groups.
  const auto width = [&](const std::string& name) {
    const int64_t channels = rows(name);
    if (channels % c.norm_groups != 0)
      refuse(fmt::format("{} has {} rows, which do not form {} groups", name, channels, c.norm_groups));
    return channels;
  };
  for (int level = 0; level < 4; ++level) {
    const auto i = static_cast<size_t>(level);
    if (c.has_encoder) c.encoder_widths[i] = width(fmt::format("encoder.down.{}.block.0.conv1.weight", level));
    c.decoder_widths[i] = width(fmt::format("decoder.up.{}.block.0.conv1.weight", level));
  }
  return c;
}

}  // namespace flux2
