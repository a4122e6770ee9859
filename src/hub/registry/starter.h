#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hub/registry/model_record.h"

namespace flux2 {

// One part of a starter set.
struct StarterPart {
  ModelType type = ModelType::Main;
  std::string what;    // "Qwen3-4B, bf16"
  std::string source;  // as `models install` takes it: owner/repo::path
  uint64_t bytes = 0;
  bool exact = true;  // false: an estimate
  std::string licence = "Apache-2.0";
  bool gated = false;
  int64_t width = 0;  // of a text encoder
};

// A set of parts that together can generate images, or one part with a task of its own: an upscaler, a classifier, an image
// encoder, a tiny autoencoder.
struct Starter {
  std::string name;     // what `models install` calls it
  std::string variant;  // published id of its transformer; empty if it has none
  std::string summary;
  std::vector<StarterPart> parts;  // the transformer first
};

const std::vector<Starter>& starters();
const Starter* find_starter(std::string_view name);  // any spelling of its name; null when there is none

// The registered record that can be used as this part; null if there is none. If there are several, the first that is ready.
const ModelRecord* record_for(const StarterPart& part, const Starter& starter, const std::vector<ModelRecord>& records);

}  // namespace flux2
