#include "engine/language.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/thread_pool.h"
#include "engine/forecast.h"
#include "engine/network_bytes.h"
#include "hub/gguf_tokenizer.h"
#include "image/vision_prep.h"
#include "model/check_network.h"
#include "nn/load.h"

namespace flux2 {

// With 16 bits it would take a fifth of the time of a token.
void quantise_head(LanguageModel& model, const Engine& engine, Quant others, Stream& stream) {
  const Tensor& matrix = model.config.ties_head ? model.embed_tokens : model.head.weight;
  if (others == Quant::None || !engine.device().is_host() || bytes_for(matrix.dtype(), 1) < 2 || is_block_type(matrix.dtype()))
    return;
  ThreadPool threads(engine.options().threads);
  model.head.weight = quantised_on(stream, matrix, Quant::Int8, threads);
}

int64_t language_bytes(const Engine& engine, const ModelFiles& files, bool sees, int64_t tokens) {
  const NamedWeights weights(open_weights(files.text_encoder, {}), ModelPart::TextEncoder);
  const DecoderConfig decoder = text_encoder_config(files, weights);
  LanguageModel model(detect_language_model(weights, decoder));
  const auto vision = sees ? std::make_unique<VisionTower>(detect_vision(weights, decoder)) : nullptr;
  const auto visit = [&](const ParameterVisitor& visitor) {
    model.visit(visitor);
    if (vision) vision->visit(visitor);
  };
  const bool host = engine.device().is_host();
  int64_t bytes = network_bytes(weights, engine.encoder_quant(), engine.activations(), host, visit).total();
  if (host && engine.encoder_quant() != Quant::None) bytes += bytes_for(DType::I8, decoder.vocab * decoder.hidden);
  const int64_t numbers = 2 * decoder.layers * decoder.kv_heads * decoder.head_dim;
  return bytes + bytes_for(engine.activations(), tokens * numbers) + overhead_bytes(engine);
}

void check_conversation(int64_t tokens) {
  if (tokens <= kLongestConversation) return;
  throw Error(
      ErrorCode::InvalidArgument,
      fmt::format("the prompt is too long for the language model: the conversation would have {} tokens, and {} are allowed",
                  tokens, kLongestConversation),
      "shorten the prompt");
}

LoadedLanguage load_language(const Engine& engine, const ModelFiles& files, bool sees) {
  const NamedWeights weights(open_weights(files.text_encoder, engine.options().log), ModelPart::TextEncoder);
  LoadedLanguage loaded;
  const DecoderConfig decoder = text_encoder_config(files, weights);
  const auto model = std::make_shared<LanguageModel>(detect_language_model(weights, decoder));
  const auto vision = sees ? std::make_shared<VisionTower>(detect_vision(weights, decoder)) : nullptr;
  const auto visit = [&](const ParameterVisitor& visitor) {
    model->visit(visitor);
    if (vision) vision->visit(visitor);
  };
  in_context("loading the language model", [&] {
    check_network(weights, visit);
    loaded.tokenizer = std::make_shared<const BpeTokenizer>(load_tokenizer(files.tokenizer));
    loaded.stream = engine.device().open_stream();
    load_parameters(weights,
                    {.stream = *loaded.stream,
                     .activations = engine.activations(),
                     .quant = engine.encoder_quant(),
                     .threads = engine.options().threads,
                     .stays_on_host = {},
                     .kept = {},
                     .quantised = {}},
                    visit);
    quantise_head(*model, engine, engine.encoder_quant(), *loaded.stream);
    loaded.stream->wait();
  });
  loaded.model = model;
  loaded.vision = vision;
  return loaded;
}

SeenImage look_at(const LoadedLanguage& language, const Image& image, DType activations, const BeforeBlock& before_layer) {
  const VisionConfig& c = language.vision->config;
  const auto patch = static_cast<int>(c.patch), merge = static_cast<int>(c.merge);
  const Image seen = vision_image(image, {.longest = static_cast<int>(c.image), .patch = patch, .merge = merge});
  const int rows = seen.height / patch, columns = seen.width / patch;
  const std::vector<float> values = vision_patches(seen, patch);
  const Tensor patches =
      Tensor::from<float>(*language.stream, activations, {int64_t{rows} * columns, int64_t{patch} * patch * 3}, values);
  const Tensor states = (*language.vision)(patches, rows, columns, before_layer);
  return {language.vision->project(states, rows, columns), rows / merge, columns / merge};
}

}  // namespace flux2
