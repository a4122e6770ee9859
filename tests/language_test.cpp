// Language models against transformers, token by token. tests/parity/language_golden.py made the models and the values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "engine/backends.h"
#include "model/generate_tokens.h"
#include "model/token_steps.h"
#include "nn/load.h"
#include "tests/support/golden.h"
#include "tests/support/paths.h"

namespace flux2 {
namespace {

using testing::HasSubstr;

std::shared_ptr<const NamedWeights> weights_of(const std::string& model) {
  return std::make_shared<const NamedWeights>(open_weights(test::golden_folder() / "language" / model), ModelPart::TextEncoder);
}

struct Loaded {
  explicit Loaded(const std::string& name, const std::string& device = "cpu", Profile profile = Profile::Exact)
      : engine({.device = device, .threads = 2, .profile = profile}),
        stream(engine.device().open_stream()),
        weights(weights_of(name)) {
    model = std::make_unique<LanguageModel>(detect_language_model(*weights, detect_decoder(*weights)));
    load_parameters(*weights, {.stream = *stream, .activations = engine.activations()},
                    [&](const ParameterVisitor& visitor) { model->visit(visitor); });
  }

  GeneratedTokens made(const std::vector<int32_t>& prompt, GenerateOptions options = {}) const {
    options.sampling.temperature = 0;
    if (options.max_new == 512) options.max_new = 64;
    return generate_tokens(*model, *stream, engine.activations(), prompt, options);
  }

  Engine engine;
  std::shared_ptr<Stream> stream;
  std::shared_ptr<const NamedWeights> weights;
  std::unique_ptr<LanguageModel> model;
};

std::vector<std::string> language_devices() {
  std::vector<std::string> names = {"cpu"};
  if (gpu_count() > 0) names.push_back("cuda");
  return names;
}

std::vector<int32_t> ids_in(const Json& run, const char* key) { return run[key].get<std::vector<int32_t>>(); }

TEST(Language, GreedyTokensAreThoseOfTransformers) {
  for (const std::string& device : language_devices())
    for (const Json& entry : read_json(test::golden_folder() / "language" / "greedy.json")) {
      const Loaded loaded(entry["model"], device);
      EXPECT_EQ(name_of(loaded.model->config.decoder.family), std::string(entry["family"] == "qwen3" ? "Qwen3" : "Mistral"));
      EXPECT_EQ(loaded.model->config.ties_head, entry["model"] == "qwen3-tied");
      for (const Json& run : entry["runs"]) {
        const auto prompt = ids_in(run, "ids");
        KeyCache cache(*loaded.stream, loaded.model->config.decoder, DType::F32, 256);
        const Tensor ids =
            Tensor::from<int32_t>(*loaded.stream, DType::I32, {1, static_cast<int64_t>(prompt.size())}, std::span(prompt));
        const auto scores = loaded.model->scores(ids, cache, DType::F32).to_doubles();
        const Difference d = difference(scores, run["scores"].get<std::vector<double>>());
        EXPECT_LE(d.relative, 2e-5) << entry["model"] << ": " << d.str();
        const GeneratedTokens made = loaded.made(prompt);
        EXPECT_EQ(made.ids, ids_in(run, "made")) << entry["model"] << " on " << device << ", prompt of " << prompt.size();
        EXPECT_EQ(made.reason, GeneratedTokens::Length);
      }
    }
}

TEST(Language, TheCacheChangesNothing) {
  const Json entry = read_json(test::golden_folder() / "language" / "greedy.json")[1];
  const Loaded loaded(entry["model"]);
  const auto prompt = ids_in(entry["runs"][3], "ids");
  const auto scores = [&](const std::vector<int64_t>& passes) {
    KeyCache cache(*loaded.stream, loaded.model->config.decoder, DType::F32, static_cast<int64_t>(prompt.size()));
    size_t start = 0;
    Tensor last;
    for (const int64_t count : passes) {
      const std::span<const int32_t> part = std::span(prompt).subspan(start, static_cast<size_t>(count));
      last = loaded.model->scores(Tensor::from<int32_t>(*loaded.stream, DType::I32, {1, count}, part), cache, DType::F32);
      start += static_cast<size_t>(count);
    }
    EXPECT_EQ(cache.length(), static_cast<int64_t>(prompt.size()));
    return last.to_doubles();
  };
  const auto whole = scores({130});
  for (const std::vector<int64_t>& passes : {std::vector<int64_t>{129, 1}, {1, 129}, {50, 50, 30}, {100, 1, 28, 1}}) {
    const Difference d = difference(scores(passes), whole);
    EXPECT_LE(d.relative, 1e-5) << d.str();
  }
}

TEST(Language, CapturedStepsGiveTheSameTokens) {
  for (const std::string& device : language_devices())
    for (const Json& entry : read_json(test::golden_folder() / "language" / "greedy.json")) {
      const Loaded loaded(entry["model"], device);
      for (const Json& run : entry["runs"])
        for (const CaptureSteps capture : {CaptureSteps::Always, CaptureSteps::Never})
          EXPECT_EQ(loaded.made(ids_in(run, "ids"), {.sampling = {}, .capture = capture}).ids, ids_in(run, "made"))
              << entry["model"] << " on " << device;
    }
}

// More tokens than a captured step looks at in the beginning.
TEST(Language, CapturedStepsGrowWithTheText) {
  const Json run = read_json(test::golden_folder() / "language" / "greedy.json")[1];
  for (const std::string& device : language_devices()) {
    const Loaded loaded(run["model"], device);
    const auto prompt = ids_in(run["runs"][3], "ids");
    const auto made = [&](CaptureSteps capture) {
      return loaded.made(prompt, {.sampling = {}, .max_new = 300, .capture = capture}).ids;
    };
    const auto captured = made(CaptureSteps::Always);
    EXPECT_EQ(captured.size(), 300u);
    EXPECT_EQ(captured, made(CaptureSteps::Never)) << device;
  }
}

// In BF16, where a token has kernels of its own on a GPU.
TEST(Language, TokensInBf16AgreeWithTheWholeText) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU on this machine";
  for (const Json& entry : read_json(test::golden_folder() / "language" / "greedy.json")) {
    const Loaded loaded(entry["model"], "cuda", Profile::Fast), exact(entry["model"]);
    const auto prompt = ids_in(entry["runs"][3], "ids");
    const auto read = [&](const Loaded& by, KeyCache& cache, size_t first, size_t count) {
      return by.model->scores(Tensor::from<int32_t>(*by.stream, DType::I32, {1, static_cast<int64_t>(count)},
                                                    std::span(prompt).subspan(first, count)),
                              cache, by.engine.activations());
    };
    const size_t last = prompt.size() - 1;
    const auto cache_for = [&](const Loaded& by) {
      return KeyCache(*by.stream, by.model->config.decoder, by.engine.activations(), static_cast<int64_t>(prompt.size()));
    };
    KeyCache whole = cache_for(loaded), of_exact = cache_for(exact);
    const auto wanted = read(exact, of_exact, 0, prompt.size()).to_doubles();
    const double from_whole = difference(read(loaded, whole, 0, prompt.size()).to_doubles(), wanted).relative;
    for (const CaptureSteps capture : {CaptureSteps::Always, CaptureSteps::Never}) {
      KeyCache cache = cache_for(loaded);
      read(loaded, cache, 0, last - 8);
      TokenSteps steps(*loaded.model, *loaded.stream, cache, {.activations = loaded.engine.activations(), .capture = capture});
      Tensor scores;
      for (size_t i = last - 8; i <= last; ++i) scores = steps.scores_after(prompt[i]);
      const Difference d = difference(scores.to_doubles(), wanted);
      EXPECT_LE(d.relative, std::max(1.5 * from_whole, 1e-3))
          << entry["model"] << ": " << d.str() << ", all at once " << from_whole;
    }
  }
}

TEST(Language, ALongPromptIsReadInPieces) {
  const Json run = read_json(test::golden_folder() / "language" / "greedy.json")[0]["runs"][3];
  EXPECT_EQ(Loaded("qwen3-tied").made(ids_in(run, "ids"), {.sampling = {}, .prefill_rows = 48}).ids, ids_in(run, "made"));
}

TEST(Language, EndsAtAStopTokenAndWhenAsked) {
  const Json run = read_json(test::golden_folder() / "language" / "greedy.json")[0]["runs"][1];
  const auto all = ids_in(run, "made");
  const Loaded loaded("qwen3-tied");
  std::vector<int32_t> seen;
  GeneratedTokens made = loaded.made(
      ids_in(run, "ids"), {.sampling = {}, .stop = {all[4], 9999}, .on_token = [&](int32_t id) { seen.push_back(id); }});
  EXPECT_EQ(made.reason, GeneratedTokens::Stop);
  EXPECT_EQ(made.ids, std::vector<int32_t>(all.begin(), all.begin() + 4));
  EXPECT_EQ(seen, made.ids);
  int asked = 0;
  made = loaded.made(ids_in(run, "ids"), {.sampling = {}, .ends = [&] { return ++asked > 3; }});
  EXPECT_EQ(made.reason, GeneratedTokens::Ended);
  EXPECT_EQ(made.ids.size(), 3u) << "within a token";
  asked = 0;
  EXPECT_THROW(loaded.made(ids_in(run, "ids"), {.sampling = {},
                                                .before_layer =
                                                    [&] {
                                                      if (++asked == 6) fail(ErrorCode::Cancelled, "stopped");
                                                    }}),
               Error);
}

TEST(Language, SamplingDependsOnTheSeedAlone) {
  const Loaded loaded("qwen3", "cpu", Profile::Fast);
  const std::vector<int32_t> prompt = {1, 2, 3};
  const auto drawn = [&](uint64_t seed) {
    return generate_tokens(*loaded.model, *loaded.stream, loaded.engine.activations(), prompt,
                           {.sampling = {.temperature = 0.7, .top_k = 20, .top_p = 0.8, .seed = seed}, .max_new = 24})
        .ids;
  };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(1), drawn(2));
}

TEST(Language, AShortenedFileCanReadButNotWrite) {
  const auto refusal = [](const NamedWeights& weights, const DecoderConfig& config) -> std::string {
    try {
      detect_language_model(weights, config);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::Incompatible);
      return e.what();
    }
    return "";
  };
  const auto whole = weights_of("qwen3"), tied = weights_of("qwen3-tied");
  DecoderConfig config = detect_decoder(*whole);
  EXPECT_EQ(refusal(*whole, config), "");
  EXPECT_EQ(refusal(*tied, config), "");
  config.hidden = 2560, config.layers = 27;
  EXPECT_THAT(refusal(*whole, config), HasSubstr("27 of 36 layers"));
  config.hidden = 4096, config.layers = 36;
  EXPECT_EQ(refusal(*whole, config), "");
  EXPECT_THAT(refusal(*tied, config), HasSubstr("lm_head")) << "Qwen3-8B has a matrix of its own";
  config = mistral_small_config();
  config.layers = 30;
  EXPECT_THAT(refusal(*whole, config), HasSubstr("30 of 40 layers"));
}

TEST(Language, RefusesIdsOfAnotherTokenizer) {
  const Loaded loaded("qwen3");
  EXPECT_THROW(loaded.made({1, 320}), Error);
  EXPECT_THROW(loaded.made({}), Error);
}

}  // namespace
}  // namespace flux2
