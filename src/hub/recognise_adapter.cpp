#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "hub/quantisation.h"
#include "hub/recognise_parts.h"
#include "model/adapter_targets.h"
#include "weights/adapter_file.h"

namespace flux2 {

namespace {

// One layer that the adapter changes.
struct Layer {
  std::string name;  // dots written as underscores
  int64_t out = 0, in = 0;
  std::string first_key;  // as stored
};

// What one layer shows about the model family of the adapter.
struct Verdict {
  std::string family;  // empty: nothing
  std::string evidence;
};

bool has(const std::string& name, const char* part) { return name.find(part) != std::string::npos; }
bool ends(const std::string& name, const char* tail) { return name.ends_with(tail); }

// The number after `part`, if `part` is not the end of a longer word; −1 if there is none.
int64_t index_behind(const std::string& name, const std::string& part) {
  for (size_t at = name.find(part); at != std::string::npos; at = name.find(part, at + 1)) {
    if (part == "transformer_blocks_" && at >= 7 && name.compare(at - 7, 7, "single_") == 0) continue;
    int64_t number = -1;
    for (size_t i = at + part.size(); i < name.size() && std::isdigit(static_cast<unsigned char>(name[i])) && number < 10000; ++i)
      number = std::max<int64_t>(number, 0) * 10 + (name[i] - '0');
    if (number >= 0) return number;
  }
  return -1;
}
int64_t double_index(const std::string& n) {
  return std::max(index_behind(n, "double_blocks_"), index_behind(n, "transformer_blocks_"));
}
int64_t single_index(const std::string& n) {
  return std::max(index_behind(n, "single_blocks_"), index_behind(n, "single_transformer_blocks_"));
}

// The width of the model, from a layer whose role is known.
int64_t width_of(const std::string& n, const Layer& m) {
  for (const char* tail : {"_qkv", "_attn_to_q", "_mlp_0", "_linear_in", "_linear1", "_to_qkv_mlp_proj"})
    if (ends(n, tail)) return m.in;
  for (const char* tail : {"_attn_proj", "_linear2", "_mlp_2", "_linear_out", "_to_out_0", "_to_add_out"})
    if (ends(n, tail)) return m.out;
  if (single_index(n) >= 0 && ends(n, "_attn_to_out")) return m.out;
  return 0;
}

std::string foreign_family(const std::string& n) {
  if (has(n, "img_mlp_net") || has(n, "img_mod_1")) return "Qwen-Image";
  if (index_behind(n, "layers_") >= 0 && has(n, "_attention_")) return "Z-Image";
  if (has(n, "input_blocks_") || has(n, "down_blocks_")) return "Stable Diffusion";
  if (double_index(n) < 0 && single_index(n) < 0 && index_behind(n, "blocks_") >= 0 &&
      (has(n, "_self_attn_") || has(n, "_cross_attn_") || has(n, "_ffn_")))
    return "Wan";
  return "";
}

bool shaped_for(const Layer& m, int64_t outs, int64_t ins) { return m.in > 0 && m.out > 0 && m.out * ins == m.in * outs; }

bool says_flux2(const std::string& n, const Layer& m) {
  if (has(n, "to_qkv_mlp_proj") || has(n, "ff_linear_") || has(n, "ff_context_linear_") || has(n, "_stream_modulation"))
    return true;
  if (single_index(n) >= 0 && ends(n, "_attn_to_out")) return true;
  if ((ends(n, "txt_in") || ends(n, "context_embedder")) && (m.in == 7680 || m.in == 12288 || m.in == 15360)) return true;
  return (ends(n, "mlp_0") && shaped_for(m, 6, 1)) || (ends(n, "linear1") && shaped_for(m, 9, 1)) ||
         (ends(n, "linear2") && shaped_for(m, 1, 4)) || (ends(n, "mlp_2") && shaped_for(m, 1, 3));
}

bool says_flux1(const std::string& n, const Layer& m, int64_t width) {
  for (const char* part :
       {"vector_in", "img_mod", "txt_mod", "norm1_linear", "norm1_context", "proj_mlp", "ff_net_", "_processor_"})
    if (has(n, part)) return true;
  if (single_index(n) >= 0 && (has(n, "_modulation") || ends(n, "_attn_to_q") || ends(n, "_proj_out"))) return true;
  if ((ends(n, "txt_in") || ends(n, "context_embedder")) && m.in == 4096) return true;
  if ((ends(n, "img_in") || ends(n, "x_embedder")) && (m.in == 64 || m.in == 384)) return true;
  if (width == 3072 && (double_index(n) >= 5 || single_index(n) >= 20)) return true;
  return (ends(n, "mlp_0") && shaped_for(m, 4, 1)) || (ends(n, "linear1") && shaped_for(m, 7, 1)) ||
         (ends(n, "linear2") && shaped_for(m, 1, 5));
}

// A file may seem to fit both families. Fused names prove more than an index, so FLUX.2 is tested first.
Verdict judge(const std::vector<Layer>& layers, int64_t width) {
  for (const Layer& m : layers)
    if (says_flux2(m.name, m)) return {"FLUX.2", fmt::format("key {}", m.first_key)};
  for (const Layer& m : layers)
    if (const std::string family = foreign_family(m.name); !family.empty()) return {family, fmt::format("key {}", m.first_key)};
  for (const Layer& m : layers)
    if (says_flux1(m.name, m, width)) return {"FLUX.1", fmt::format("key {}", m.first_key)};
  if (width == 4096 || width == 6144) return {"FLUX.2", fmt::format("width {}", width)};
  return {};
}

// The base model that the metadata names, reduced to letters and digits.
std::string base_named_by(const std::map<std::string, std::string>& metadata) {
  std::string text;
  for (const char* key : {"modelspec.architecture", "ss_base_model_version"})
    if (const auto at = metadata.find(key); at != metadata.end() && text.empty())
      for (char c : at->second)
        if (std::isalnum(static_cast<unsigned char>(c))) text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// "LoRA", "DoRA", "LoKr", …
std::string algorithm_of(const AdapterFile& file) {
  for (const AdapterModule& m : file.modules)
    if (m.part("magnitude")) return "DoRA";
  return name_of(file.modules[0].kind);
}

}  // namespace

std::optional<Component> recognise_adapter(const SharedSource& source) {
  const AdapterFile adapter = list_adapter(source);
  if (!adapter.is_adapter) return std::nullopt;
  Component c{.kind = ComponentKind::Adapter, .dialect = adapter.key_style};
  c.storage = quantisation_label(*source, "");
  if (adapter.modules.empty()) {
    c.family = "text encoder";
    c.problem = "this adapter changes text encoders only, which FLUX.2 does not use";
    return c;
  }
  int64_t width = 0, rank = 0;
  std::vector<Layer> layers;
  for (const AdapterModule& m : adapter.modules) {
    const AdapterModule::Extents extents = m.extents();
    Layer layer{m.name, extents.out, extents.in, m.first_key()};
    std::replace(layer.name.begin(), layer.name.end(), '.', '_');
    if (!width) width = width_of(layer.name, layer);
    rank = std::max(rank, m.rank());
    layers.push_back(std::move(layer));
  }
  Verdict verdict = judge(layers, width);
  const std::string named = base_named_by(source->metadata());
  if (verdict.family.empty() && named.starts_with("flux2")) verdict = {"FLUX.2", fmt::format("metadata names {}", named)};
  if (verdict.family.empty() && named.starts_with("flux1")) verdict = {"FLUX.1", fmt::format("metadata names {}", named)};

  c.family = verdict.family;
  c.variant = algorithm_of(adapter) + (rank ? fmt::format(" of rank {}", rank) : std::string());
  if (width) c.evidence.push_back(fmt::format("width {}", width));
  if (!verdict.evidence.empty()) c.evidence.push_back(verdict.evidence);
  if (!adapter.text_encoder_keys.empty())
    c.evidence.push_back(fmt::format("{} tensors for text encoders are ignored", adapter.text_encoder_keys.size()));

  if (c.family == "FLUX.2") {
    if (width) c.variant += fmt::format(" for {}", size_for_width(width));
    c.needs = width ? fmt::format("{} (width {})", size_for_width(width), width) : "a FLUX.2 model";
  } else if (c.family.empty() && width == 3072) {
    c.evidence.push_back("FLUX.1 or klein 4B: the attention of double blocks looks alike in both");
  } else if (!c.family.empty()) {
    c.problem = fmt::format("adapter was made for {} (evidence: {}); it cannot be used with FLUX.2", c.family, verdict.evidence);
  } else {
    c.problem = fmt::format("adapter for an unknown model; its first key is {}", layers[0].first_key);
  }
  return c;
}

}  // namespace flux2
