#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/flux2_config.h"

namespace flux2 {

// How a model is run when the user does not say otherwise.
struct ModelDefaults {
  int steps = 4;
  double guidance = 1.0;
  int width = 1024, height = 1024;
  int text_length = 512;  // slots of text
  std::vector<int> text_layers = {9, 18, 27};
  std::string system_message = {};  // of prompts for Mistral, if it is not FLUX.2-dev's
  enum Guidance { None, Embedded, TrueCfg } guidance_kind = None;
};

// A published member of the family.
struct Variant {
  std::string id;  // "flux.2-klein-4b"
  Flux2Config config;
  ModelDefaults defaults;
  bool distilled = true;  // few steps, guidance locked
  bool kv = false;        // reuses the keys and values of references
  std::string encoder;    // "Qwen3-4B"
  std::string licence;
};

const std::vector<Variant>& variants();

// A model's name as its lower-case letters and digits, without the name of the family: "FLUX.2-klein-4B" and "klein_4b" are
// both "klein4b".
std::string bare_model_name(std::string_view name);

// Accepts any spelling: names are compared by bare_model_name().
std::optional<Variant> find_variant(std::string_view name);
std::vector<std::string> closest_variants(std::string_view name, int count = 3);

}  // namespace flux2
