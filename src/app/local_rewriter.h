#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "engine/language.h"
#include "rewrite/rewriter.h"

namespace flux2 {

struct LocalRewriterOptions {
  ModelFiles files;  // its text encoder rewrites
  EngineOptions engine;
  int64_t max_tokens = 512;
  double timeout_s = 120;
  std::string prompt_instructions, edit_instructions;
  Log log;
  std::function<void(std::string_view)> on_text = {};  // receives the answer piece by piece
};

// Rewrites prompts with the language model that a FLUX.2 model reads prompts with. The model is in memory from the first question
// until this object is destroyed.
class LocalRewriter : public Rewriter {
 public:
  // Throws Incompatible if the model's text encoder cannot write.
  explicit LocalRewriter(LocalRewriterOptions options);
  ~LocalRewriter() override;

  RewriteAnswer answer(const RewriteQuestion& question, const Cancelled& cancelled) override;
  std::string way() const override { return "local"; }
  std::string model() const override { return name_; }
  std::string place() const override { return {}; }
  bool sees_images() const override { return false; }

 private:
  LocalRewriterOptions options_;
  std::string name_;  // of the language model
  std::unique_ptr<Engine> engine_;
  LoadedLanguage language_;
};

}  // namespace flux2
