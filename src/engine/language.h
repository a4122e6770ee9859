#pragma once

#include <memory>

#include "engine/engine.h"
#include "model/language_model.h"

namespace flux2 {

// A model's text encoder as what it was made to be: a language model that writes text. On a CPU its weights are those of the
// mapped files that the text encoder reads too.
struct LoadedLanguage {
  std::shared_ptr<Stream> stream;
  std::shared_ptr<const BpeTokenizer> tokenizer;
  std::shared_ptr<const LanguageModel> model;
};

// Throws Incompatible, in one sentence, if the file holds only what reading prompts needs.
LoadedLanguage load_language(const Engine& engine, const ModelFiles& files);

}  // namespace flux2
