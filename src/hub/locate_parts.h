#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "hub/model_files.h"
#include "hub/recognise.h"
#include "hub/training_kind.h"

namespace flux2 {

// An environment variable of the reference implementation that names the transformer of a variant.
struct ModelVariable {
  const char* name;
  const char* variant;
};

// The variables that name files. An empty value counts as unset; a path that does not exist is an error, so that a
// mistyped variable never falls back to another model.
class Environment {
 public:
  explicit Environment(std::function<const char*(const char*)> lookup) : lookup_(std::move(lookup)) {}

  std::optional<std::filesystem::path> path(const char* name) const;
  const ModelVariable* first_model() const;                       // the first one set; null when none is
  const ModelVariable* model_of(std::string_view variant) const;  // the variant's, when set

 private:
  std::optional<std::filesystem::path> value(const char* name) const;

  std::function<const char*(const char*)> lookup_;
};

// The transformer that was chosen and everything its choice implies.
struct ChosenModel {
  Component component;
  std::filesystem::path root;   // where its other parts are looked for first
  Json index = Json::object();  // model_index.json of the root
  TrainingKind training;
  const ModelVariable* variable = nullptr;     // the environment variable that named it
  const RegisteredPart* registered = nullptr;  // its entry in the registry
  bool bundled = false;

  const Flux2Config& config() const { return *component.flux2; }
  bool is_trained_like(const Variant& v) const { return training.distilled == v.distilled && training.kv == v.kv; }
  // A custom model that describes itself must be complete: parts of published models do not fit it.
  bool self_contained() const { return bundled || (!variable && index.contains("flux2")); }
};

// Finds the autoencoder, text encoder and tokenizer of a chosen transformer, or throws an error that names the missing one.
// `folders` are the folders of installed models; `files` already has the model's defaults.
void find_parts(const ChosenModel& chosen, const ModelQuery& query, const std::vector<std::filesystem::path>& folders,
                ModelFiles& files, const Log& log);

// What both halves of locate_model() need.
constexpr const char* kDefaultInstall = "flux.2-klein-4b";
inline Suggestion install_command(const std::string& id) { return run_command("models install " + id); }
std::string joined(const std::vector<std::filesystem::path>& paths);
const Variant* published_like(const Flux2Config& config);   // null for a custom model
std::filesystem::path path_of(const RegisteredPart& part);  // throws NotFound when its file is gone

// candidates_in(), but a damaged model_index.json of another model is ignored.
std::vector<std::filesystem::path> candidates_quietly(const std::filesystem::path& root, ComponentKind kind, const Log& log);

}  // namespace flux2
