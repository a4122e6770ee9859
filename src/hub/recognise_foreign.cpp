#include <fmt/format.h>

#include <algorithm>

#include "hub/name_tests.h"
#include "hub/quantisation.h"
#include "hub/recognise_parts.h"

namespace flux2 {

namespace {

struct Family {
  const char* name;
  std::vector<const char*> all;  // every one of these is part of some name
};

// The order matters: a family whose names include those of another family comes first.
const std::vector<Family>& families() {
  static const std::vector<Family> list = {
      {"Chroma", {"distilled_guidance_layer."}},
      {"Hunyuan", {"double_blocks.", "txt_in.individual_token_refiner"}},
      {"Hunyuan", {"double_blocks.", "byt5_in."}},
      {"Qwen-Image", {"transformer_blocks.0.img_mod.1."}},
      {"Z-Image", {"noise_refiner.", "cap_embedder."}},
      {"Wan", {"blocks.0.self_attn.q.", "patch_embedding."}},
      {"SD3", {"joint_blocks."}},
      {"SD3", {"pos_embed.proj.", "transformer_blocks.0.norm1.linear."}},
      {"FLUX.1", {"vector_in."}},
      {"FLUX.1", {"double_blocks.0.img_mod.lin."}},
      {"FLUX.1", {"single_blocks.0.modulation.lin."}},
      {"FLUX.1", {"time_text_embed.", "transformer_blocks.0.norm1.linear."}},
      {"FLUX.1", {"single_transformer_blocks.0.norm.linear."}},
      {"SDXL", {"input_blocks.", "label_emb."}},
      {"SDXL", {"down_blocks.", "add_embedding."}},
      {"Stable Diffusion 1 or 2", {"input_blocks."}},
      {"Stable Diffusion 1 or 2", {"down_blocks.0.resnets.0.time_emb_proj."}},
  };
  return list;
}

// Quantisation formats that this program cannot read, recognised by the tensors next to a weight.
const std::vector<Family>& quantisations() {
  static const std::vector<Family> list = {
      {"Nunchaku (SVDQuant)", {".qweight", ".wscales"}},
      {"GPTQ or AWQ", {".qweight", ".qzeros"}},
      {"SDNQ", {".weight", ".zero_point"}},
      {"SDNQ", {".weight", ".svd_up"}},
      {"optimum-quanto", {"._data", "._scale"}},
  };
  return list;
}

bool some_name_ends(const WeightSource& source, std::string_view tail) {
  const auto& tensors = source.tensors();
  return std::any_of(tensors.begin(), tensors.end(), [&](const StoredTensor& t) { return t.name.ends_with(tail); });
}

}  // namespace

std::optional<Component> recognise_foreign_quantisation(const WeightSource& source) {
  for (const Family& kind : quantisations()) {
    if (!std::all_of(kind.all.begin(), kind.all.end(), [&](const char* tail) { return some_name_ends(source, tail); })) continue;
    Component c{.storage = kind.name};
    c.evidence.push_back(fmt::format("names that end in {} and {}", kind.all[0], kind.all[1]));
    c.problem = fmt::format("the weights are quantised by {}, which this program does not read", kind.name);
    c.hint = "look for a bf16, fp8, nvfp4 or GGUF file of the same model";
    return c;
  }
  return std::nullopt;
}

std::optional<Component> recognise_foreign_model(const WeightSource& source) {
  const NameTests names(source);
  for (const Family& family : families()) {
    Component c{.kind = ComponentKind::Transformer, .family = family.name};
    for (const char* part : family.all)
      if (const StoredTensor* t = names.containing(part))
        c.evidence.push_back(fmt::format("{} as in {} models", t->name, family.name));
    if (c.evidence.size() != family.all.size()) continue;

    std::string blocks;
    if (c.family == "FLUX.1") {
      const int64_t doubles = std::max(names.count("double_blocks."), names.count("transformer_blocks."));
      const int64_t singles = std::max(names.count("single_blocks."), names.count("single_transformer_blocks."));
      blocks = fmt::format(" ({} double, {} single blocks)", doubles, singles);
    }
    c.storage = quantisation_label(source, "");
    c.problem = fmt::format("this is a {} model{}; only FLUX.2 is supported", family.name, blocks);
    c.hint = Hint("install a FLUX.2 model with {0}", {run_command("models install flux.2-klein-4b")});
    return c;
  }
  return std::nullopt;
}

}  // namespace flux2
