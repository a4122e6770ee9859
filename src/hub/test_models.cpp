#include "hub/test_models.h"

#include <fmt/format.h>

#include "model/flux2_transformer.h"
#include "model/vae.h"

namespace flux2::testing_models {

namespace {

template <class Model>
std::vector<Stripped> list(Model model, const std::string& prefix) {
  std::vector<Stripped> tensors;
  model.visit([&](const Parameter& p) { tensors.push_back({prefix + p.name, p.shape}); });
  return tensors;
}

}  // namespace

std::filesystem::path write_stripped_gguf(const std::filesystem::path& path, const std::vector<Stripped>& tensors,
                                          const std::vector<GgufPair>& pairs) {
  std::vector<GgufDeclared> declared;
  uint64_t data = 0;
  for (const Stripped& t : tensors) {
    declared.push_back({t.name, *dtype_named(t.dtype), t.shape});
    const auto bytes = static_cast<uint64_t>(bytes_for(declared.back().dtype, t.shape.numel()));
    data += bytes + gguf_padding(bytes);
  }
  const std::string header = gguf_header(pairs, declared);
  write_file(path, header);
  std::filesystem::resize_file(path, header.size() + data);
  return path;
}

std::vector<Stripped> transformer_tensors(const Flux2Config& config, const std::string& prefix) {
  return list(Flux2Transformer(config), prefix);
}

std::vector<Stripped> vae_tensors(const VaeConfig& config, const std::string& prefix) { return list(Vae(config), prefix); }

std::vector<Stripped> qwen3_tensors(int64_t width, int64_t layers, const std::string& prefix) {
  std::vector<Stripped> tensors = {{prefix + "embed_tokens.weight", {151936, width}}};
  for (int64_t i = 0; i < layers; ++i) {
    const std::string p = fmt::format("{}layers.{}.", prefix, i);
    for (const char* name : {"input_layernorm", "post_attention_layernorm"}) tensors.push_back({p + name + ".weight", {width}});
    for (const char* name : {"q_norm", "k_norm"}) tensors.push_back({p + "self_attn." + name + ".weight", {128}});
    tensors.push_back({p + "self_attn.q_proj.weight", {4096, width}});
    tensors.push_back({p + "self_attn.k_proj.weight", {1024, width}});
    tensors.push_back({p + "self_attn.v_proj.weight", {1024, width}});
    tensors.push_back({p + "self_attn.o_proj.weight", {width, 4096}});
    tensors.push_back({p + "mlp.gate_proj.weight", {9728, width}});
    tensors.push_back({p + "mlp.up_proj.weight", {9728, width}});
    tensors.push_back({p + "mlp.down_proj.weight", {width, 9728}});
  }
  return tensors;
}

}  // namespace flux2::testing_models
