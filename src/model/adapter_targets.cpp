#include "model/adapter_targets.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/flux2_transformer.h"

namespace flux2 {

namespace {

std::string with_underscores(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '.', '_');
  return text;
}

}  // namespace

const char* size_for_width(int64_t width) {
  return width == 3072 ? "klein 4B" : width == 4096 ? "klein 9B" : width == 6144 ? "dev" : "a custom size";
}

void AdapterTargets::add(std::string_view name, const AdapterTarget& target) { targets_.emplace(with_underscores(name), target); }

AdapterTargets::AdapterTargets(const Flux2Config& config) {
  const int64_t h = config.hidden;
  // Every matrix under its canonical name, and under diffusers' names with the rows these stand for.
  Flux2Transformer(config).visit([&](const Parameter& p) {
    constexpr std::string_view kWeight = ".weight";
    if (p.kind != ParameterKind::Matrix || !p.name.ends_with(kWeight)) return;
    const auto layer = [&](const std::string& name) { return name.substr(0, name.size() - kWeight.size()); };
    const AdapterTarget all{p.name, {0, p.shape[0]}, p.shape[1]};
    add(layer(p.name), all);
    for (const DiffusersTensor& d : to_diffusers(ModelPart::Transformer, p.name, p.shape)) {
      AdapterTarget target = all;
      target.halves_exchanged = d.rows.size() == 2;
      if (!target.halves_exchanged) target.rows = d.rows[0];
      add(layer(d.name), target);
    }
  });
  const auto rows = [&](const std::string& weight, int64_t in, int64_t begin, int64_t end) {
    return AdapterTarget{weight, {begin, end}, in};
  };
  for (int64_t i = 0; i < config.double_blocks; ++i)
    for (const auto& [stream, fused] : {std::pair{"img", "qkv"}, {"txt", "added_qkv"}}) {
      const std::string name = fmt::format("double_blocks.{}.{}_attn.qkv", i, stream), weight = name + ".weight";
      add(fmt::format("transformer_blocks.{}.attn.{}", i, fused), rows(weight, h, 0, 3 * h));
      for (int64_t part = 0; part < 3; ++part) add(fmt::format("{}.{}", name, part), rows(weight, h, part * h, (part + 1) * h));
      if (std::string_view(stream) == "img")
        add(fmt::format("transformer_blocks.{}.attn.to_out", i),
            rows(fmt::format("double_blocks.{}.img_attn.proj.weight", i), h, 0, h));
    }
  for (int64_t i = 0; i < config.single_blocks; ++i) {
    const std::string name = fmt::format("single_blocks.{}.linear1", i), weight = name + ".weight";
    for (int64_t part = 0; part < 4; ++part)
      add(fmt::format("{}.{}", name, part), rows(weight, h, part * h, part < 3 ? (part + 1) * h : 9 * h));
    add(name + "_qkv", rows(weight, h, 0, 3 * h));
  }
  // The published sets spell the shared modulations both ways.
  for (const char* name : {"double_stream_modulation_img", "double_stream_modulation_txt", "single_stream_modulation"})
    if (const AdapterTarget* t = find(fmt::format("{}.lin", name))) add(fmt::format("{}.linear", name), *t);
}

const AdapterTarget* AdapterTargets::find(std::string_view module) const {
  static constexpr std::string_view kPrefixes[] = {
      "base_model_model_", "model_diffusion_model_", "diffusion_model_", "transformer_", "unet_",
      "lora_unet_",        "lora_transformer_",      "lycoris_",         "lora_"};
  std::string name = with_underscores(module);
  for (bool stripped = true; stripped;) {
    if (const auto at = targets_.find(name); at != targets_.end()) return &at->second;
    if (name.starts_with("sformer_blocks_")) name = "tran" + name;  // what is left of `lora_transformer_blocks`
    else if (name.starts_with("single_sformer_blocks_")) name.replace(7, 0, "tran");
    if (const auto at = targets_.find(name); at != targets_.end()) return &at->second;
    stripped = false;
    for (std::string_view prefix : kPrefixes)
      if (name.starts_with(prefix)) {
        name.erase(0, prefix.size());
        stripped = true;
        break;
      }
  }
  return nullptr;
}

}  // namespace flux2
