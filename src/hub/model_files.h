#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "hub/registered.h"
#include "hub/variants.h"

namespace flux2 {

// The paths of the parts of a model, and how to run it.
struct ModelFiles {
  std::string id;  // "flux.2-klein-4b", "pico" or the name of a custom model
  std::filesystem::path transformer, vae, text_encoder, tokenizer;
  ModelDefaults defaults;
  bool distilled = true;
  bool kv = false;                   // trained to reuse the keys and values of references
  bool bundled = false;              // the small model that comes with the program
  std::vector<std::string> reasons;  // why this variant and these parts were chosen, for -v and inspect
};

// The user's choice of a model. Empty fields are searched for.
struct ModelQuery {
  std::string model;        // name or key of a registered model, variant id, file or folder
  bool names_only = false;  // `model` comes from an untrusted file: it is looked up as a name, never as a path
  std::filesystem::path transformer, vae, text_encoder, tokenizer;
  std::optional<bool> base;                             // set by the user: base (true) or distilled
  std::vector<std::filesystem::path> folders;           // searched for installed models, in this order
  RegisteredParts registered;                           // registered parts, which the user may also name
  std::filesystem::path bundled;                        // folder of the bundled model, empty when there is none
  std::function<const char*(const char*)> environment;  // getenv, or a test's own
  bool need_text_encoder = true;                        // false when text states are given
};

// Finds every part, or throws an error that says which one is missing, where it was searched for and how to install it. Reads
// headers only.
ModelFiles locate_model(const ModelQuery& query, const Log& log);

}  // namespace flux2
