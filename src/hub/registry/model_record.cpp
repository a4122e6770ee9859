#include "hub/registry/model_record.h"

#include <algorithm>
#include <cctype>
#include <iterator>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

constexpr const char* kTypes[] = {"main",     "vae",      "text_encoder", "tokenizer",     "lora",
                                  "upscaler", "tiny_vae", "classifier",   "image_encoder", "image_prompt"};
constexpr const char* kStates[] = {"ready", "missing", "damaged", "incomplete", "unsupported"};

template <class Enum, size_t N>
std::optional<Enum> named(const char* const (&names)[N], std::string_view name) {
  for (size_t i = 0; i < N; ++i)
    if (name == names[i]) return static_cast<Enum>(i);
  return std::nullopt;
}

template <class T>
void put(Json& json, const char* key, const std::optional<T>& value) {
  if (value) json[key] = *value;
}

const Json* member(const Json& json, const char* key) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(key);
  return found == json.end() ? nullptr : &*found;
}

void take(const Json& json, const char* key, std::optional<int64_t>& value) {
  if (const Json* m = member(json, key); m && m->is_number_integer()) value = m->get<int64_t>();
}
void take(const Json& json, const char* key, std::optional<double>& value) {
  if (const Json* m = member(json, key); m && m->is_number()) value = m->get<double>();
}
void take(const Json& json, const char* key, std::optional<bool>& value) {
  if (const Json* m = member(json, key); m && m->is_boolean()) value = m->get<bool>();
}
void take(const Json& json, const char* key, int64_t& value) {
  if (const Json* m = member(json, key); m && m->is_number_integer()) value = m->get<int64_t>();
}
void take(const Json& json, const char* key, std::string& value) {
  if (const Json* m = member(json, key); m && m->is_string()) value = m->get<std::string>();
}

}  // namespace

const char* name_of(ModelType type) { return kTypes[static_cast<size_t>(type)]; }
const char* name_of(ModelState state) { return kStates[static_cast<size_t>(state)]; }
std::optional<ModelType> model_type_named(std::string_view name) { return named<ModelType>(kTypes, name); }
std::optional<ModelState> model_state_named(std::string_view name) { return named<ModelState>(kStates, name); }

ComponentKind component_kind(ModelType type) {
  switch (type) {
    case ModelType::Main: return ComponentKind::Transformer;
    case ModelType::Vae:
    case ModelType::TinyVae: return ComponentKind::Autoencoder;
    case ModelType::TextEncoder: return ComponentKind::TextEncoder;
    case ModelType::Tokenizer: return ComponentKind::Tokenizer;
    case ModelType::Lora: return ComponentKind::Adapter;
    case ModelType::Upscaler: return ComponentKind::Upscaler;
    case ModelType::Classifier: return ComponentKind::Classifier;
    case ModelType::ImageEncoder: return ComponentKind::ImageEncoder;
    case ModelType::ImagePrompt: return ComponentKind::ImagePrompt;
  }
  return ComponentKind::Unknown;
}

Json to_json(const ModelRecord::Defaults& d) {
  Json json = Json::object();
  put(json, "steps", d.steps);
  put(json, "guidance", d.guidance);
  put(json, "width", d.width);
  put(json, "height", d.height);
  put(json, "lora_weight", d.lora_weight);
  return json;
}

ModelRecord::Defaults defaults_from(const Json& json) {
  ModelRecord::Defaults d;
  take(json, "steps", d.steps);
  take(json, "guidance", d.guidance);
  take(json, "width", d.width);
  take(json, "height", d.height);
  take(json, "lora_weight", d.lora_weight);
  return d;
}

Json to_json(const ModelRecord::Components& c) {
  Json json = Json::object();
  if (!c.vae.empty()) json["vae"] = c.vae;
  if (!c.text_encoder.empty()) json["text_encoder"] = c.text_encoder;
  if (!c.tokenizer.empty()) json["tokenizer"] = c.tokenizer;
  return json;
}

ModelRecord::Components components_from(const Json& json) {
  ModelRecord::Components c;
  take(json, "vae", c.vae);
  take(json, "text_encoder", c.text_encoder);
  take(json, "tokenizer", c.tokenizer);
  return c;
}

Json to_json(const ModelRecord::Probe& p) {
  Json json = {{"hidden", p.hidden},
               {"double_blocks", p.double_blocks},
               {"single_blocks", p.single_blocks},
               {"context_dim", p.context_dim},
               {"tensors", p.tensors}};
  put(json, "distilled", p.distilled);
  return json;
}

ModelRecord::Probe probe_from(const Json& json) {
  ModelRecord::Probe p;
  take(json, "hidden", p.hidden);
  take(json, "double_blocks", p.double_blocks);
  take(json, "single_blocks", p.single_blocks);
  take(json, "context_dim", p.context_dim);
  take(json, "tensors", p.tensors);
  take(json, "distilled", p.distilled);
  return p;
}

Json to_json(const ModelRecord& r) {
  Json json = {{"key", r.key},
               {"name", r.name},
               {"type", name_of(r.type)},
               {"family", r.family},
               {"variant", r.variant},
               {"format", r.format},
               {"quant", r.quant},
               {"path", r.path.string()},
               {"in_place", r.in_place},
               {"source", {{"kind", r.source.kind}, {"ref", r.source.ref}, {"revision", r.source.revision}}},
               {"sha256", r.sha256},
               {"bytes", r.bytes},
               {"license", r.license},
               {"gated", r.gated},
               {"trigger_phrases", r.triggers},
               {"description", r.description},
               {"cover_asset", r.cover_asset},
               {"defaults", to_json(r.defaults)},
               {"components", to_json(r.components)},
               {"related", r.related},
               {"probe", to_json(r.probe)},
               {"installed_at", r.installed_at},
               {"state", name_of(r.state)},
               {"note", r.note},
               {"files", Json::array()}};
  for (const RecordedFile& f : r.files)
    json["files"].push_back({{"path", f.path.string()}, {"bytes", f.bytes}, {"sha256", f.sha256}});
  return json;
}

void check_model_name(std::string_view name) {
  const bool valid = std::none_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '/' || c == '\\';
  });
  if (name.empty() || name.size() > 100 || !valid || name.front() == '-' || name == "." || name == "..")
    throw Error(ErrorCode::InvalidArgument, fmt::format("\"{}\" cannot be the name of a model", printable(name)),
                "a name has 1 to 100 characters, no slash, and does not begin with a dash");
  const bool key_like = name.size() == 10 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
                          return std::isdigit(c) != 0 || (c >= 'a' && c <= 'f');
                        });
  check(!key_like, "\"{}\" has the form of a key; choose another name", name);
}

}  // namespace flux2
