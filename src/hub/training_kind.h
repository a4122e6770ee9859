#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "base/json.h"

namespace flux2 {

// Base or distilled cannot be seen in the tensors of a klein model: names and shapes are the same.
struct TrainingKind {
  bool distilled = true;
  bool kv = false;     // the 9B sibling that reuses keys and values of references
  std::string reason;  // which sign decided, for people
  bool assumed = false;
};

struct TrainingSigns {
  std::optional<bool> base;                     // the user's word
  const Json* model_index = nullptr;            // of the folder, when there is one
  std::map<std::string, std::string> metadata;  // of the weights file
  std::filesystem::path path;                   // its name, then its folders' names
};

// The first sign that says something decides, in the order of the members; without any, distilled.
TrainingKind training_kind(const TrainingSigns& signs);

}  // namespace flux2
