#include "model/check_network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "nn/load.h"

namespace flux2 {

namespace {

// What detect_flux2(), detect_decoder() and detect_vae() read.
std::vector<std::string> tensors_with_sizes(ModelPart part) {
  switch (part) {
    case ModelPart::Transformer: return {"img_in.weight", "txt_in.weight"};
    case ModelPart::TextEncoder:
      return {"model.embed_tokens.weight", "model.layers.0.self_attn.q_norm.weight", "model.layers.0.self_attn.q_proj.weight",
              "model.layers.0.self_attn.k_proj.weight", "model.layers.0.mlp.gate_proj.weight"};
    case ModelPart::Autoencoder: {
      std::vector<std::string> names;
      for (int level = 0; level < 4; ++level)
        for (const char* side : {"encoder.down", "decoder.up"})
          names.push_back(fmt::format("{}.{}.block.0.conv1.weight", side, level));
      return names;
    }
  }
  return {};
}

}  // namespace

void check_network(const NamedWeights& weights, const std::function<void(const ParameterVisitor&)>& visit) {
  try {
    check_parameters(weights, visit);
  } catch (const Error& e) {
    std::vector<std::string> read;
    for (const std::string& name : tensors_with_sizes(weights.part()))
      if (weights.has(name)) read.push_back(fmt::format("{} {}", name, weights.shape(name)));
    throw Error(e.code(), fmt::format("{}. The sizes that are expected were read from {}", e.what(), fmt::join(read, ", ")),
                e.hint());
  }
}

}  // namespace flux2
