#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "base/json.h"

namespace flux2 {

// The tensors of a klein model do not show whether it is base or distilled: names and shapes are the same.
struct TrainingKind {
  bool distilled = true;
  bool kv = false;     // the 9B sibling that reuses keys and values of references
  std::string reason;  // the evidence that decided, for messages
  bool assumed = false;
  bool named_klein = false;  // a published distilled model says no more in its names
};

// Under this key the metadata of files that we write says how the model was trained: "base", "distilled" or "kv". A name or a
// model_index.json says it of the original only.
inline constexpr const char* kTrainingKey = "flux2.training";

struct TrainingSigns {
  std::optional<bool> base;                     // the user's word
  const Json* model_index = nullptr;            // of the folder, when there is one
  std::map<std::string, std::string> metadata;  // of the weights file
  std::filesystem::path path;                   // its name, then its folders' names
};

// The first member that gives evidence decides, in their order; without any evidence, the model counts as distilled.
TrainingKind training_kind(const TrainingSigns& signs);

}  // namespace flux2
