#include "model/flux2_config.h"

#include <fmt/format.h>

#include <set>

#include "nn/load.h"

namespace flux2 {

Flux2Config klein_4b_config() { return {}; }
Flux2Config klein_9b_config() { return {.hidden = 4096, .double_blocks = 8, .single_blocks = 24, .text_width = 12288}; }
Flux2Config dev_config() {
  return {.hidden = 6144, .double_blocks = 8, .single_blocks = 48, .text_width = 15360, .guidance = true};
}

std::string Flux2Config::name() const {
  if (*this == klein_4b_config()) return "klein 4B";
  if (*this == klein_9b_config()) return "klein 9B";
  if (*this == dev_config()) return "dev";
  return fmt::format("custom FLUX.2 (width {}, {}+{} blocks, text width {}{})", hidden, double_blocks, single_blocks, text_width,
                     guidance ? ", guidance" : "");
}

namespace {

// Blocks are numbered from 0 without gaps.
int64_t count_blocks(const NamedWeights& weights, const std::string& prefix) {
  std::set<int64_t> seen;
  for (const std::string& name : weights.names()) {
    if (!name.starts_with(prefix)) continue;
    int64_t index = 0;
    size_t at = prefix.size();
    if (at >= name.size() || !std::isdigit(static_cast<unsigned char>(name[at]))) continue;
    for (; at < name.size() && std::isdigit(static_cast<unsigned char>(name[at])) && index < 100000; ++at)
      index = index * 10 + (name[at] - '0');
    seen.insert(index);
  }
  if (!seen.empty() && *seen.rbegin() + 1 != static_cast<int64_t>(seen.size()))
    fail(ErrorCode::Incompatible, "{}: {}{} exists but lower numbers are missing", weights.source().description(), prefix,
         *seen.rbegin());
  return static_cast<int64_t>(seen.size());
}

}  // namespace

Flux2Config detect_flux2(const NamedWeights& weights) {
  const auto need = [&](const char* name) {
    if (!weights.has(name))
      throw Error(ErrorCode::Incompatible,
                  fmt::format("{} is not a FLUX.2 transformer: it has no {}", weights.source().description(), name),
                  Hint("{0} shows what a file is", {run_command("inspect")}));
    return config_shape(weights, name, 2);
  };
  need("double_stream_modulation_img.lin.weight");
  const Shape img_in = need("img_in.weight"), txt_in = need("txt_in.weight");
  Flux2Config config;
  config.hidden = img_in[0];
  config.channels = img_in[1];
  config.text_width = txt_in[1];
  config.double_blocks = count_blocks(weights, "double_blocks.");
  config.single_blocks = count_blocks(weights, "single_blocks.");
  config.guidance = weights.has("guidance_in.in_layer.weight");
  if (config.channels != 128)
    fail(ErrorCode::Incompatible, "{}: img_in.weight takes {} channels; FLUX.2 has 128", weights.source().description(),
         config.channels);
  if (config.hidden % Flux2Config::kHeadDim != 0 || config.hidden == 0)
    fail(ErrorCode::Incompatible, "{}: the width of img_in.weight, {}, is not a multiple of the head width 128",
         weights.source().description(), config.hidden);
  return config;
}

}  // namespace flux2
