#include "app/scene_training.h"

#include "pipeline/latents.h"
#include "train/data/scene_set.h"

namespace flux2 {

namespace {

class SceneEncoder {
 public:
  SceneEncoder(const TrainingDataset& dataset, const EngineOptions& options, const Progress& progress)
      : engine_(options), session_(engine_.open(dataset.files, progress, {.transformer = false, .text_encoder = false})) {
    const VaeConfig& config = session_->models.vae->config;
    if (!config.has_encoder)
      throw Error(ErrorCode::Incompatible, "this autoencoder file has only the decoder, so it cannot encode scenes",
                  Hint("choose a file with an encoder with {0}", {set_option("vae")}));
    if (config.packed_channels() != kLatentChannels)
      fail(ErrorCode::Incompatible, "{} makes latents with {} channels; FLUX.2 has {}", dataset.files.vae.string(),
           config.packed_channels(), kLatentChannels);
  }

  bool on_host() const { return engine_.device().is_host(); }

  std::vector<float> encode(const std::vector<Image>& images) const {
    return encoded_images(*session_->models.vae, *session_->stream, session_->activations, images);
  }

 private:
  Engine engine_;
  std::unique_ptr<ModelSession> session_;
};

}  // namespace

TrainingSet open_scenes(const TrainingDataset& dataset, const EngineOptions& engine, const EncoderTraining& text,
                        const std::shared_ptr<const TrainingImageEncoder>& image_prompts, const Progress& progress,
                        const AppContext& context) {
  const auto encoder = std::make_shared<const SceneEncoder>(dataset, engine, progress);
  SceneLatentOptions options;
  options.encode = [encoder](const std::vector<Image>& images) { return encoder->encode(images); };
  if (!encoder->on_host()) options.pixels_together *= 4;  // with fewer, launching takes a GPU longer than computing
  options.tokenise = text.tokenise;
  if (image_prompts) options.feature = [image_prompts](const Image& image) { return image_prompts->of(image); };
  options.progress = [at = progress](int64_t done, int64_t total) {
    at.at(Phase::EncodeImages, static_cast<int>(done), static_cast<int>(total));
  };
  options.log = context.log;
  return scene_latent_set(dataset.configs, dataset.model, std::move(options));
}

}  // namespace flux2
