#pragma once

#include <string>

#include "engine/engine.h"

namespace flux2 {

struct LanguageBenchOptions {
  std::string variant = "klein-4b";  // whose language model is measured, at real size with random weights
  int prompt = 64;                   // tokens that are read first
  int tokens = 32;                   // tokens that are written, one after the other
};

struct LanguageBenchResult {
  std::string model;               // "qwen3, 36 layers of width 2560"
  double prompt_seconds = 0;       // for reading the prompt, until the first token is chosen
  double median = 0, fastest = 0;  // seconds for each further token
  int64_t weight_bytes = 0;        // that every token reads
  int64_t peak_bytes = 0;          // of activations and of weights that are not mapped

  double bandwidth() const { return static_cast<double>(weight_bytes) / median; }  // bytes/s
};

// Times the language model that belongs to a variant as prompt rewriting uses it.
LanguageBenchResult bench_language(const EngineOptions& engine, const LanguageBenchOptions& options);

}  // namespace flux2
