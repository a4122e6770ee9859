#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "weights/weight_source.h"

namespace flux2 {

// One layer that an adapter changes, with the extents its matrices imply; 0 where they do not tell.
struct AdapterModule {
  int64_t in = 0, out = 0, rank = 0;
  std::string first_key;  // as stored
};

struct AdapterModules {
  std::map<std::string, AdapterModule> modules;  // by name, dots written as underscores
  std::string kind;                              // "LoRA", "DoRA", "LoHa", "LoKr", "OFT", "GLoRA", "IA3", "difference"
  std::string style;                             // how the pairs are called: "lora_A/lora_B", "lora_down/lora_up", …
  int64_t text_encoder_keys = 0;                 // modules of text encoders, set aside
  int64_t tensors = 0, other_tensors = 0;        // with and without an adapter's suffix
};

// Finds the suffixes that only adapters have; `modules` is empty when there are none.
AdapterModules read_adapter_modules(const WeightSource& source);

}  // namespace flux2
