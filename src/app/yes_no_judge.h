#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/language.h"
#include "image/image.h"

namespace flux2 {

// How strongly a language model would begin its answer with yes and with no: the logits of the two words.
struct YesNo {
  float yes = 0, no = 0;
  bool tie_is_yes = false;  // the smaller id wins, as arg max does

  bool is_yes() const { return yes > no || (yes == no && tie_is_yes); }
};

// Asks the language model that a FLUX.2 model reads prompts with questions that have the answer yes or no. It reads the question
// in one pass and compares two logits; it writes no text. One thread uses it at a time.
class YesNoJudge {
 public:
  using Cancelled = std::function<bool()>;

  // Loads the text encoder of `files`, with `sees` also what looks at images. Throws Incompatible, in one sentence, if it cannot
  // answer or see.
  YesNoJudge(const ModelFiles& files, const EngineOptions& engine, bool sees);
  ~YesNoJudge();

  DecoderFamily family() const { return language_.model->config.decoder.family; }
  bool sees() const { return language_.vision != nullptr; }
  bool is_on_host() const { return engine_.device().is_host(); }

  YesNo about_prompt(const std::string& prompt, const Cancelled& cancelled = {}) const;
  // The image is scaled to about 512 × 512 pixels.
  YesNo about_image(const Image& image, const Cancelled& cancelled = {}) const;

 private:
  YesNo ask(const std::vector<int32_t>& ids, const Tensor& rows, const Cancelled& cancelled) const;
  int32_t first_token(const char* word) const;

  Engine engine_;
  LoadedLanguage language_;  // after the engine, so that it is destroyed first
  int32_t yes_ = 0, no_ = 0;
};

// Whose language model a text encoder is; reads headers only.
DecoderFamily family_of_text_encoder(const ModelFiles& files);

}  // namespace flux2
