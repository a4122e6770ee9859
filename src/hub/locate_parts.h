#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "hub/environment.h"
#include "hub/model_files.h"
#include "hub/recognise.h"
#include "hub/training_kind.h"

namespace flux2 {

// The transformer that was chosen and everything its choice implies.
struct ChosenModel {
  Component component;
  std::filesystem::path root;                  // where its other parts are looked for first
  Json index = Json::object();                 // model_index.json of the root
  TrainingKind training;
  const ModelVariable* variable = nullptr;     // the environment variable that named it
  const RegisteredPart* registered = nullptr;  // its entry in the registry
  bool bundled = false;

  const Flux2Config& config() const { return *component.flux2; }
  bool is_trained_like(const Variant& v) const { return training.distilled == v.distilled && training.kv == v.kv; }
  // A model that describes itself is complete: parts of published models do not fit it.
  bool self_contained() const { return bundled || (!variable && index.contains("flux2")); }
};

// Finds autoencoder, text encoder and tokenizer of a chosen transformer, or says which one is missing. `folders` are the places
// where models are installed; `files` knows the model's defaults already.
void find_parts(const ChosenModel& chosen, const ModelQuery& query, const std::vector<std::filesystem::path>& folders,
                ModelFiles& files, const Log& log);

// What both halves of locate_model() need.
constexpr const char* kDefaultInstall = "flux.2-klein-4b";
std::string joined(const std::vector<std::filesystem::path>& paths);
const Variant* published_like(const Flux2Config& config);   // null for a custom model
std::filesystem::path path_of(const RegisteredPart& part);  // throws NotFound when its file is gone

// candidates_in(), with a damaged model_index.json of some other model counting as nothing.
std::vector<std::filesystem::path> candidates_quietly(const std::filesystem::path& root, ComponentKind kind, const Log& log);

}  // namespace flux2
