#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/json.h"
#include "engine/language.h"
#include "model/token_sampler.h"
#include "rewrite/rewriter.h"
#include "text/qwen_chat.h"

namespace flux2 {

struct LocalRewriterOptions {
  ModelFiles files;  // its text encoder rewrites
  EngineOptions engine;
  int64_t max_tokens = 512;
  double timeout_s = 120;
  Json params = Json::object();  // how tokens are chosen: temperature, top_k, top_p, min_p, repetition_penalty
  std::string prompt_instructions, edit_instructions, caption_instructions;
  Log log;
  bool sends_images = true;  // whether it may look at images, if it can
  // Called before the language model is loaded, with the bytes that it takes, and once more with all there is if memory ran out.
  // Frees what others hold and returns whether that was anything.
  std::function<bool(int64_t bytes)> make_room = {};
};

// What a model's text encoder can do besides reading prompts, from headers alone.
struct LanguageAbilities {
  bool writes = false, sees = false;
  std::string problem = {}, hint = {};  // why it does not write
};
LanguageAbilities language_abilities(const ModelFiles& files);

// Rewrites prompts and describes images with the language model that a FLUX.2 model reads prompts with. The model is in memory
// from the first question until release() or the end of this object.
class LocalRewriter : public Rewriter {
 public:
  // Throws Incompatible if the model's text encoder cannot write.
  explicit LocalRewriter(LocalRewriterOptions options);
  ~LocalRewriter() override;

  RewriteAnswer answer(const RewriteQuestion& question, const Cancelled& cancelled) override;
  std::string way() const override { return "local"; }
  std::string model() const override { return name_; }
  std::string place() const override { return {}; }
  bool sees_images() const override { return sees_images_; }
  void release() override;

 private:
  // The tokens of a question, and what the vision tower made of its images.
  struct Conversation {
    ChatTokens tokens;
    Tensor rows;
  };
  Conversation conversation(const RewriteQuestion& question, const BeforeBlock& before_layer) const;
  void load(bool sees);
  int64_t bytes_needed(bool sees, int64_t tokens) const;  // throws OutOfMemory if that is more than the engine's limit

  LocalRewriterOptions options_;
  std::string name_;  // of the language model
  DecoderFamily family_ = DecoderFamily::Qwen3;
  TokenSampling sampling_;
  bool sees_images_ = false;
  std::unique_ptr<Engine> engine_;
  LoadedLanguage language_;  // after the engine, so that it is destroyed first
};

}  // namespace flux2
