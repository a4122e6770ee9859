#include "server/api/model_catalog.h"

#include <algorithm>
#include <chrono>

#include "app/registry_access.h"
#include "base/file_hash.h"
#include "base/text.h"
#include "hub/adapter_tools.h"
#include "server/http/errors.h"
#include "weights/named_weights.h"
#include "weights/weight_source.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

constexpr size_t kHashDigits = 10;

int64_t modified_at(const fs::path& file) {
  std::error_code failure;
  const auto when = fs::last_write_time(file, failure);
  if (failure) return 0;
  const auto age = fs::file_time_type::clock::now() - when;
  const auto at = std::chrono::system_clock::now() - std::chrono::duration_cast<std::chrono::system_clock::duration>(age);
  return std::chrono::duration_cast<std::chrono::seconds>(at.time_since_epoch()).count();
}

// Clients see no folders of this machine outside the models folders.
fs::path shown_path(const fs::path& file, const std::vector<fs::path>& folders) {
  for (const fs::path& folder : folders) {
    fs::path relative = file.lexically_relative(folder);
    if (!relative.empty() && *relative.begin() != "..") return relative;
  }
  return file.filename();
}

Json adapter_metadata(const ModelRecord& record) {
  Json metadata = {{"variant", record.variant}};
  if (!record.triggers.empty()) metadata["triggers"] = record.triggers;
  if (!record.description.empty()) metadata["description"] = record.description;
  return metadata;
}

bool is_hash_of(const InstalledModel& model, const std::string& text) {
  return text == model.hash || (!model.sha256.empty() && text == model.sha256);
}

}  // namespace

std::vector<InstalledModel> ModelCatalog::registered(ModelType type) const {
  std::vector<InstalledModel> models;
  const auto registry = look_into_registry(context_);
  if (!registry) return models;
  const auto folders = model_folders(context_);
  for (const ModelRecord& record : registry->all()) {
    if (record.type != type || record.state == ModelState::Unsupported || record.state == ModelState::Missing) continue;
    InstalledModel model;
    model.name = record.name;
    model.sha256 = record.sha256;
    model.hash = record.sha256.empty() ? record.key : record.sha256.substr(0, kHashDigits);
    model.file = shown_path(record.path, folders);
    model.installed = record.installed_at;
    if (type == ModelType::Lora) model.metadata = adapter_metadata(record);
    models.push_back(std::move(model));
  }
  return models;
}

std::string ModelCatalog::bundled_hash(const fs::path& file) const {
  std::lock_guard lock(mutex_);
  std::string& hash = hashes_[file.string()];
  if (hash.empty()) hash = sha256_of_file(file);
  return hash;
}

std::vector<InstalledModel> ModelCatalog::main_models() const {
  std::vector<InstalledModel> models = registered(ModelType::Main);
  for (const fs::path& bundled : bundled_models(context_.environment)) {
    if (!fs::exists(bundled)) continue;
    try {
      const ModelFiles files = find(bundled.filename());
      if (!files.bundled) continue;
      InstalledModel model;
      model.name = files.id;
      model.file = bundled.filename() / files.transformer.lexically_relative(bundled);
      model.installed = modified_at(files.transformer);
      if (fs::is_regular_file(files.transformer)) {
        model.sha256 = bundled_hash(files.transformer);
        model.hash = model.sha256.substr(0, kHashDigits);
      }
      models.push_back(std::move(model));
    } catch (const HttpError&) {  // a damaged bundled model must not hide the others
    }
  }
  return models;
}

std::vector<InstalledModel> ModelCatalog::autoencoders() const { return registered(ModelType::Vae); }
std::vector<InstalledModel> ModelCatalog::adapters() const { return registered(ModelType::Lora); }

ModelFiles ModelCatalog::find(const std::string& name) const {
  const auto unknown = [&](const std::string& why) {
    const std::string what = name.empty() ? "No model is available: " : "The model \"" + printable(name) + "\" does not exist";
    // That a name is unknown says no more than the sentence itself.
    const std::string more = why == "unknown model " + name ? "." : name.empty() ? why : ": " + why;
    return HttpError(404, "model_not_found", what + more, "model");
  };
  RequestSpec spec;
  if (name.empty()) {
    spec = default_;
  } else {
    spec.model = name;
    spec.names_only.insert("model");
  }
  std::lock_guard lock(mutex_);
  try {
    return choose_model(spec, context_, &found_);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::NotFound && e.code() != ErrorCode::InvalidArgument) throw;
    throw unknown(e.what());
  }
}

std::string ModelCatalog::name_of(const std::string& wanted) const {
  const std::vector<InstalledModel> models = main_models();
  for (const InstalledModel& model : models)
    if (wanted == model.name || wanted == model.title() || is_hash_of(model, wanted)) return model.name;
  // "name [hash]" of a model whose hash has changed since.
  const size_t bracket = wanted.rfind(" [");
  std::string name = bracket != wanted.npos && wanted.ends_with(']') ? wanted.substr(0, bracket) : wanted;
  find(name);  // throws if there is none
  return name;
}

std::optional<Flux2Config> ModelCatalog::geometry_of(const std::string& name) const {
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = geometries_.find(name); known != geometries_.end()) return known->second;
  }
  try {
    const ModelFiles files = find(name);
    const Flux2Config config = detect_flux2(NamedWeights(open_weights(files.transformer), ModelPart::Transformer));
    const std::lock_guard lock(mutex_);
    geometries_[name] = config;
    return config;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::vector<std::string> ModelCatalog::models_for(const fs::path& adapter) const {
  std::vector<std::string> names;
  std::vector<std::pair<Flux2Config, bool>> tried;  // models often have the same geometry
  for (const InstalledModel& model : main_models()) {
    const auto config = geometry_of(model.name);
    if (!config) continue;
    auto known = std::find_if(tried.begin(), tried.end(), [&](const auto& one) { return one.first == *config; });
    if (known == tried.end()) {
      bool fits = true;
      try {
        open_adapter({.path = adapter}, *config, Log());
      } catch (const Error&) {
        fits = false;
      }
      known = tried.insert(tried.end(), {*config, fits});
    }
    if (known->second) names.push_back(model.name);
  }
  return names;
}

LanguageAbilities ModelCatalog::abilities(const ModelFiles& files) const {
  const std::string key = files.text_encoder.string() + "\n" + std::to_string(modified_at(files.text_encoder));
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = abilities_.find(key); known != abilities_.end()) return known->second;
  }
  LanguageAbilities found = language_abilities(files);
  const std::lock_guard lock(mutex_);
  return abilities_[key] = std::move(found);
}

void ModelCatalog::refresh() {
  std::lock_guard lock(mutex_);
  geometries_.clear();
  abilities_.clear();
  found_.clear();
  hashes_.clear();
}

}  // namespace flux2
