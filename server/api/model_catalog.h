#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "app/local_rewriter.h"
#include "app/model_choice.h"
#include "base/json.h"
#include "hub/registry/model_record.h"
#include "model/flux2_config.h"

namespace flux2 {

// A model, autoencoder or adapter that requests can name.
struct InstalledModel {
  std::string name;
  std::string sha256;          // empty when unknown
  std::string hash;            // ten hex digits: the beginning of `sha256`, else the key of the registry
  std::filesystem::path file;  // relative to the models folder or its base name
  int64_t installed = 0;       // seconds since 1970
  Json metadata = Json::object();

  std::string title() const { return name + " [" + hash + "]"; }
};

// The models of this machine as the compatible interfaces list them. Thread-safe.
class ModelCatalog {
 public:
  explicit ModelCatalog(const AppContext& context) : context_(context) {}

  // The model of requests that name none, as the server's own settings choose it; it may be a path. Call it before requests come.
  void set_default(RequestSpec spec) { default_ = std::move(spec); }

  std::vector<InstalledModel> main_models() const;  // those of the registry by name, then the bundled one
  std::vector<InstalledModel> autoencoders() const;
  std::vector<InstalledModel> adapters() const;

  // The files of the model with that name, key, hash or title; the default one for an empty name. Throws HttpError 404
  // `model_not_found`. Paths are never accepted.
  ModelFiles find(const std::string& name) const;
  // The name for which the engine finds it: "pico [0123456789]" → "pico".
  std::string name_of(const std::string& name_or_title) const;

  // The names of the models that an adapter file fits. Reads headers only.
  std::vector<std::string> models_for(const std::filesystem::path& adapter) const;

  // What the text encoder of a model can do. Reads headers only.
  LanguageAbilities abilities(const ModelFiles& files) const;

  void refresh();  // forgets what it found

 private:
  std::vector<InstalledModel> registered(ModelType type) const;
  std::string bundled_hash(const std::filesystem::path& file) const;
  std::optional<Flux2Config> geometry_of(const std::string& name) const;  // nothing if its file cannot be read

  const AppContext& context_;
  RequestSpec default_;
  mutable std::mutex mutex_;
  mutable FoundModels found_;
  mutable std::map<std::string, std::string> hashes_;                // of the bundled model's file
  mutable std::map<std::string, Flux2Config> geometries_ = {};       // by name
  mutable std::map<std::string, LanguageAbilities> abilities_ = {};  // by file of the text encoder
};

}  // namespace flux2
