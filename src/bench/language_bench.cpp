#include "bench/language_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "engine/language.h"
#include "engine/random_weights.h"
#include "hub/synth_model.h"
#include "model/generate_tokens.h"

namespace flux2 {

namespace {

using Clock = std::chrono::steady_clock;

int64_t bytes_of(const Tensor& t) {
  if (!t.defined()) return 0;
  return t.bytes() + (t.scales().defined() ? t.scales().bytes() : 0);
}

// The output matrix is read as a whole; of the embeddings, a token reads one row.
int64_t bytes_for_a_token(const LanguageModel& model) {
  int64_t sum = 0;
  LanguageModel copy = model;  // visit() is not const; a copy shares the tensors
  copy.visit([&](const Parameter& p) {
    if (p.kind == ParameterKind::Matrix) sum += bytes_of(p.tensor);
  });
  const bool reads_embeddings = model.config.ties_head && !model.head.weight.defined();
  const bool has_own_copy = model.config.ties_head && model.head.weight.defined();
  return sum + (reads_embeddings ? bytes_of(model.embed_tokens) : 0) + (has_own_copy ? bytes_of(model.head.weight) : 0);
}

}  // namespace

LanguageBenchResult bench_language(const EngineOptions& engine_options, const LanguageBenchOptions& options) {
  check(options.prompt > 0 && options.tokens > 1, "a prompt of {} tokens and {} new ones cannot be measured", options.prompt,
        options.tokens);
  const SynthModel shape = model_of({.variant = options.variant});
  if (!shape.text_encoder) fail(ErrorCode::InvalidArgument, "{} has no language model", options.variant);
  const Engine engine(engine_options);
  const auto stream = engine.device().open_stream();
  const DecoderConfig& decoder = *shape.text_encoder;
  LanguageModel model({.decoder = decoder, .ties_head = decoder.family == DecoderFamily::Qwen3});
  RandomWeights random(stream, engine);
  model.visit([&](const Parameter& p) { random(p); });
  random.finish();
  quantise_head(model, engine, engine.quant(), *stream);

  std::vector<int32_t> prompt;
  for (int i = 0; i < options.prompt; ++i) prompt.push_back(static_cast<int32_t>((7919 * (i + 1)) % decoder.vocab));
  std::vector<double> times;
  auto last = Clock::now();
  GenerateOptions how;
  how.sampling = {.temperature = 0.7, .top_k = 20, .top_p = 0.8};  // as prompts are rewritten
  how.max_new = options.tokens;
  if (engine.options().memory_limit > 0) how.capture = CaptureSteps::Never;  // as when a prompt is rewritten
  how.on_token = [&](int32_t) {
    const auto now = Clock::now();
    times.push_back(std::chrono::duration<double>(now - last).count());
    last = now;
  };
  generate_tokens(model, *stream, engine.activations(), prompt, how);

  LanguageBenchResult result{
      .model = fmt::format("{}, {} layers of width {}", name_of(decoder.family), decoder.layers, decoder.hidden),
      .prompt_seconds = times.front(),
      .weight_bytes = bytes_for_a_token(model),
      .peak_bytes = static_cast<int64_t>(stream->peak_bytes())};
  times.erase(times.begin());
  std::sort(times.begin(), times.end());
  result.median = times[times.size() / 2];
  result.fastest = times.front();
  return result;
}

}  // namespace flux2
