#include "cli/model_keeper.h"

namespace flux2 {

std::string ModelKeeper::key_of(const Settings& settings, const ModelFiles& model) {
  std::string key;
  for (const auto* path : {&model.transformer, &model.vae, &model.text_encoder, &model.tokenizer}) key += path->string() + "\n";
  for (const char* option : {"device", "threads", "profile", "quant", "offload", "max-vram", "max-ram", "vae-tile", "lora-mode"})
    key += settings.text(option) + "\n";
  return key + (settings.has("embeddings") ? "no text encoder" : "");
}

PictureMaker& ModelKeeper::maker_for(const Settings& settings, const ModelFiles& model,
                                     std::span<const ResolvedRequest> requests) {
  const std::string key = key_of(settings, model);
  run_.settings = settings;  // what does not concern the model may change from request to request
  if (maker_ && maker_->is_loaded() && key == key_) return *maker_;
  maker_.reset();  // before the next one takes memory
  maker_ = std::make_unique<PictureMaker>(run_, model, display_);
  maker_->load(requests);
  key_ = key;
  return *maker_;
}

}  // namespace flux2
