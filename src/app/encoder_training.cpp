#include "app/encoder_training.h"

#include <algorithm>

#include "app/autoencoder_training.h"
#include "hub/gguf_tokenizer.h"
#include "text/prompt.h"
#include "train/data/scene_set.h"

namespace flux2 {

namespace {

template <class Network>
int64_t parameters_in(Network network) {
  int64_t count = 0;
  network.visit([&](const Parameter& p) { count += p.shape.numel(); });
  return count;
}

}  // namespace

EncoderTraining prepare_encoder_training(const TrainingDataset& dataset, const Flux2Config& transformer,
                                         const TrainOptions& options, const Engine& engine, const Log& log) {
  const ModelFiles& files = dataset.files;
  const NamedWeights weights(open_weights(files.text_encoder, log), ModelPart::TextEncoder);
  const DecoderConfig config = text_encoder_config(files, weights);
  if (config.output_width() != dataset.model.text_width)
    fail(ErrorCode::Incompatible, "{} makes text states of width {}, but {} needs {}: it is the text encoder of another model",
         files.text_encoder.string(), config.output_width(), dataset.model.full_name, dataset.model.text_width);
  if (options.train == "transformer+text_encoder")
    check_training_memory("the transformer and the text encoder",
                          parameters_in(TextEncoder(config)) + parameters_in(Flux2Transformer(transformer)), options, engine);

  EncoderTraining training;
  training.text_length = files.defaults.text_length;
  training.tokenizer = std::make_shared<BpeTokenizer>(load_tokenizer(files.tokenizer, files.defaults.system_message));
  const auto vocabulary = static_cast<int32_t>(config.vocab);
  training.tokenise = [tokenizer = training.tokenizer, length = training.text_length, vocabulary, log](const std::string& text) {
    PromptTokens tokens = tokenize_prompt(*tokenizer, text, length);
    if (!tokens.dropped.empty()) log.warn("a caption has more than {} tokens; {}", length, unused_part(tokens, false));
    if (std::any_of(tokens.ids.begin(), tokens.ids.end(), [&](int32_t id) { return id < 0 || id >= vocabulary; }))
      fail(ErrorCode::Incompatible, "the tokenizer has more words than the text encoder: they do not belong together");
    return CaptionTokens{std::move(tokens.ids), std::move(tokens.mask)};
  };
  if (!are_scenes(dataset.configs))
    training.captions = std::make_shared<const CaptionTable>(list_datasets(dataset.configs, {}, log), training.tokenise);
  return training;
}

Tensor states_of(const EncoderTraining& training, const TextEncoder& encoder, const std::string& prompt, Stream& stream,
                 DType activations) {
  const PromptTokens tokens = tokenize_prompt(*training.tokenizer, prompt, training.text_length);
  const Shape shape{1, training.text_length};
  const Tensor states = encoder(Tensor::from<int32_t>(stream, DType::I32, shape, tokens.ids),
                                Tensor::from<int32_t>(stream, DType::I32, shape, tokens.mask), activations);
  const std::vector<float> values = states.to_floats();
  return Tensor::host_copy(values.data(), DType::F32, {states.dim(1), states.dim(2)});
}

}  // namespace flux2
