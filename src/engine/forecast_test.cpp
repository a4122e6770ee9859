#include "engine/forecast.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "hub/model_files.h"
#include "hub/synth.h"

namespace flux2 {
namespace {

ModelFiles synthetic_model() {
  static const ModelFiles files = [] {
    const auto folder = std::filesystem::path(testing::TempDir()) / fmt::format("forecast-model-{}", ::getpid());
    std::filesystem::remove_all(folder);
    synthesise_model({.variant = "tiny", .out = folder});
    return locate_model({.model = folder.string()}, {});
  }();
  return files;
}

// ThreadSanitizer makes an image far slower, and looks for races, which small ones have as well.
#if defined(__SANITIZE_THREAD__)
constexpr int kShrink = 4;
#else
constexpr int kShrink = 1;
#endif

Request request_of(int size, int batch, bool cfg) {
  Request r;
  r.prompt = "a red fox";
  r.width = r.height = size / kShrink;
  r.steps = 2;
  r.batch = batch;
  if (cfg) r.cfg = 4.0;
  return r;
}

const PhaseForecast& phase(const Forecast& f, Phase wanted) {
  for (const PhaseForecast& p : f.phases)
    if (p.phase == wanted) return p;
  throw std::runtime_error("no such phase");
}

// The pool's peak of a real run, its largest phase, is what was forecast, up to the panels that products pack for themselves.
TEST(Forecast, MatchesThePoolsPeak) {
  const Engine engine({.device = "cpu", .threads = 2});
  for (const Request& request : {request_of(128, 1, false), request_of(256, 2, true), request_of(512, 1, false)}) {
    const Forecast f = forecast(engine, synthetic_model(), request);
    ASSERT_EQ(f.phases.size(), 3u);
    int64_t forecast_peak = 0;
    for (const PhaseForecast& p : f.phases) {
      EXPECT_GT(p.activations, 0) << name_of(p.phase);
      EXPECT_GT(p.weights, 0) << name_of(p.phase);
      EXPECT_GT(p.seconds, 0) << name_of(p.phase);
      forecast_peak = std::max(forecast_peak, p.activations);
    }
    const auto model = engine.open(synthetic_model(), {});
    text_to_image(*model, request, {}, [](const Picture&) {});
    const auto real = static_cast<double>(model->stream->peak_bytes());
    EXPECT_NEAR(static_cast<double>(forecast_peak), real, 0.1 * real + (32 << 20)) << request.width;
  }
}

TEST(Forecast, AddsTheTimesOfLaterPasses) {
  Forecast total, pass;
  total.phases = {{.phase = Phase::Text, .seconds = 1}, {.phase = Phase::Denoise, .weights = 7, .seconds = 10}};
  pass.phases = {{.phase = Phase::Text, .seconds = 1},
                 {.phase = Phase::EncodeReferences, .weights = 3, .seconds = 0.5},
                 {.phase = Phase::Denoise, .weights = 5, .seconds = 2}};
  total.add(pass, 4);
  ASSERT_EQ(total.phases.size(), 3u);
  EXPECT_EQ(total.phases[0].seconds, 1) << "the prompts are encoded once";
  EXPECT_EQ(total.phases[1].phase, Phase::EncodeReferences);
  EXPECT_EQ(total.phases[1].seconds, 2);
  EXPECT_EQ(total.phases[1].weights, 3);
  EXPECT_EQ(total.phases[2].seconds, 18);
  EXPECT_EQ(total.phases[2].weights, 7);
}

TEST(Forecast, CountsReferences) {
  const Engine engine({.device = "cpu", .threads = 2});
  Request request = request_of(256, 1, false);
  const Forecast without = forecast(engine, synthetic_model(), request);
  constexpr int kSide = 512 / kShrink;
  for (int i = 0; i < 2; ++i)
    request.references.push_back(
        std::make_shared<const Planes>(Planes{kSide, kSide, std::vector<float>(3 * kSide * kSide, 0.1f * i)}));
  const Forecast with = forecast(engine, synthetic_model(), request);
  EXPECT_GT(phase(with, Phase::EncodeReferences).activations, 0);
  EXPECT_GT(phase(with, Phase::EncodeReferences).seconds, 0);
  EXPECT_GT(phase(with, Phase::Denoise).activations, 2 * phase(without, Phase::Denoise).activations);
  const auto model = engine.open(synthetic_model(), {});
  text_to_image(*model, request, {}, [](const Picture&) {});
  int64_t peak = 0;
  for (const PhaseForecast& p : with.phases) peak = std::max(peak, p.activations);
  const auto real = static_cast<double>(model->stream->peak_bytes());
  EXPECT_NEAR(static_cast<double>(peak), real, 0.1 * real + (32 << 20));
}

// Without the adapter's file: a request does not name it.
TEST(Forecast, CountsImagePrompts) {
  const Engine engine({.device = "cpu", .threads = 2});
  Request request = request_of(128, 1, false);
  const Forecast without = forecast_memory(engine, synthetic_model(), request);
  request.image_prompts.push_back({.feature = std::vector<float>(64)});
  const Forecast with = forecast_memory(engine, synthetic_model(), request);
  EXPECT_GT(with.adapters, 0);
  EXPECT_EQ(phase(with, Phase::Denoise).weights, phase(without, Phase::Denoise).weights + with.adapters);
}

// Seconds at the same rates: what a busy machine measures may differ more than these requests do.
TEST(Forecast, GrowsWithTheRequest) {
  const Engine engine({.device = "cpu", .threads = 2});
  constexpr double kRate = 1e9;
  const ModelRates rates = {
      .attention = kRate, .step = kRate, .text_attention = kRate, .text = kRate, .decode = kRate, .encode = kRate};
  const Forecast small = forecast(engine, synthetic_model(), request_of(128, 1, false), rates);
  const Forecast large = forecast(engine, synthetic_model(), request_of(512, 1, false), rates);
  EXPECT_GT(phase(large, Phase::Decode).activations, 8 * phase(small, Phase::Decode).activations);
  EXPECT_GT(phase(large, Phase::Denoise).seconds, 2 * phase(small, Phase::Denoise).seconds);
  // 16 times the pixels. Only the decoder's attention grows faster.
  EXPECT_GT(phase(large, Phase::Decode).seconds, 16 * phase(small, Phase::Decode).seconds);
  EXPECT_LT(phase(large, Phase::Decode).seconds, 20 * phase(small, Phase::Decode).seconds);
  EXPECT_EQ(phase(large, Phase::Text).seconds, phase(small, Phase::Text).seconds);
  EXPECT_EQ(phase(large, Phase::Text).weights, phase(small, Phase::Text).weights);
}

TEST(Forecast, QuantisedWeightsAreSmaller) {
  const Engine plain({.device = "cpu", .threads = 2}), int8({.device = "cpu", .threads = 2, .quant = Quant::Int8});
  const Request request = request_of(128, 1, false);
  EXPECT_LT(phase(forecast(int8, synthetic_model(), request), Phase::Denoise).weights,
            phase(forecast(plain, synthetic_model(), request), Phase::Denoise).weights);
}

// Both are measured on the spot, and a busy machine changes both, for which the test may be repeated. A factor of ten each time
// would be a mistake in the counting.
TEST(Forecast, SecondsAreNearThoseOfARun) {
  const Engine engine({.device = "cpu", .threads = 1});
  Request request = request_of(256, 1, false);
  const auto model = engine.open(synthetic_model(), {});
  text_to_image(*model, request, {}, [](const Picture&) {});
  const auto is_near = [](double forecast_seconds, double seconds) {
    return forecast_seconds > seconds / 10 && forecast_seconds < seconds * 10;
  };
  constexpr int kAttempts = 4;
  std::string seen;
  for (int i = 0; i < kAttempts; ++i) {
    const Forecast f = forecast(engine, synthetic_model(), request);
    model->prompt_cache.clear();
    const PhaseTimes times = text_to_image(*model, request, {}, [](const Picture&) {});
    const double denoise = phase(f, Phase::Denoise).seconds, decode = phase(f, Phase::Decode).seconds;
    if (is_near(denoise, times.denoise) && is_near(decode, times.decode)) return;
    seen +=
        fmt::format("denoise {} s instead of {} s, decode {} s instead of {} s\n", denoise, times.denoise, decode, times.decode);
  }
  FAIL() << seen;
}

}  // namespace
}  // namespace flux2
