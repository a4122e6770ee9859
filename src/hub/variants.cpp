#include "hub/variants.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace flux2 {

namespace {

constexpr const char* kNonCommercial = "FLUX non-commercial licence";

ModelDefaults distilled_defaults() { return {}; }
ModelDefaults base_defaults() { return {.steps = 50, .guidance = 4.0, .guidance_kind = ModelDefaults::TrueCfg}; }
ModelDefaults dev_defaults() {
  return {.steps = 50, .guidance = 4.0, .text_layers = {10, 20, 30}, .guidance_kind = ModelDefaults::Embedded};
}

}  // namespace

const std::vector<Variant>& variants() {
  static const std::vector<Variant> list = {
      {"flux.2-klein-4b", klein_4b_config(), distilled_defaults(), true, false, "Qwen3-4B", "Apache-2.0"},
      {"flux.2-klein-9b", klein_9b_config(), distilled_defaults(), true, false, "Qwen3-8B", kNonCommercial},
      {"flux.2-klein-9b-kv", klein_9b_config(), distilled_defaults(), true, true, "Qwen3-8B", kNonCommercial},
      {"flux.2-klein-base-4b", klein_4b_config(), base_defaults(), false, false, "Qwen3-4B", "Apache-2.0"},
      {"flux.2-klein-base-9b", klein_9b_config(), base_defaults(), false, false, "Qwen3-8B", kNonCommercial},
      {"flux.2-dev", dev_config(), dev_defaults(), false, false, "Mistral-Small-24B", kNonCommercial},
  };
  return list;
}

std::string bare_model_name(std::string_view name) {
  std::string text;
  for (char c : name)
    if (std::isalnum(static_cast<unsigned char>(c))) text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text.starts_with("flux2") ? text.substr(5) : text;
}

std::optional<Variant> find_variant(std::string_view name) {
  const std::string wanted = bare_model_name(name);
  for (const Variant& v : variants())
    if (bare_model_name(v.id) == wanted) return v;
  return std::nullopt;
}

std::vector<std::string> closest_variants(std::string_view name, int count) {
  const std::string wanted = bare_model_name(name).substr(0, 64);
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const Variant& v : variants()) ranked.emplace_back(edit_distance(wanted, bare_model_name(v.id)), v.id);
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> ids;
  for (const auto& [distance, id] : ranked)
    if (static_cast<int>(ids.size()) < count) ids.push_back(id);
  return ids;
}

}  // namespace flux2
