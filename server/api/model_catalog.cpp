#include "server/api/model_catalog.h"

#include <algorithm>
#include <chrono>

#include "app/registry_access.h"
#include "base/file_hash.h"
#include "base/text.h"
#include "server/http/errors.h"

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
    const fs::path relative = file.lexically_relative(folder);
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
  if (const fs::path bundled = bundled_model(context_.environment); !bundled.empty() && fs::exists(bundled)) {
    try {
      const ModelFiles files = find("pico");
      if (files.bundled) {
        InstalledModel model;
        model.name = files.id;
        model.file = bundled.filename() / files.transformer.lexically_relative(bundled);
        model.installed = modified_at(files.transformer);
        if (fs::is_regular_file(files.transformer)) {
          model.sha256 = bundled_hash(files.transformer);
          model.hash = model.sha256.substr(0, kHashDigits);
        }
        models.push_back(std::move(model));
      }
    } catch (const HttpError&) {  // a damaged bundled model must not hide the others
    }
  }
  return models;
}

std::vector<InstalledModel> ModelCatalog::autoencoders() const { return registered(ModelType::Vae); }
std::vector<InstalledModel> ModelCatalog::adapters() const { return registered(ModelType::Lora); }

ModelFiles ModelCatalog::find(const std::string& name) const {
  const auto unknown = [&](const std::string& why) {
    const std::string what =
        name.empty() ? "There is no model to use: " : "The model \"" + printable(name) + "\" does not exist: ";
    return HttpError(404, "model_not_found", what + why, "model");
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
  const std::string name = bracket != wanted.npos && wanted.ends_with(']') ? wanted.substr(0, bracket) : wanted;
  find(name);  // throws if there is none
  return name;
}

void ModelCatalog::refresh() {
  std::lock_guard lock(mutex_);
  found_.clear();
  hashes_.clear();
}

}  // namespace flux2
