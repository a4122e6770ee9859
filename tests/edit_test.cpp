// Properties of editing that hold for any weights, on the tiny model in profile exact.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <ctime>

#include "pipeline/references.h"
#include "tests/support/golden.h"

namespace flux2 {
namespace {

std::shared_ptr<const Planes> picture(int width, int height, float slope) {
  Planes planes{width, height, std::vector<float>(static_cast<size_t>(3 * width * height))};
  for (size_t i = 0; i < planes.values.size(); ++i) planes.values[i] = std::sin(slope * static_cast<float>(i));
  return std::make_shared<const Planes>(std::move(planes));
}

Request small_request() {
  Request request;
  request.prompt = "a red cat";
  request.width = 64, request.height = 48;
  request.steps = 2;
  return request;
}

class Edit : public testing::Test {
 protected:
  std::vector<float> latents_of(const Request& request, const Progress& progress = {}) {
    std::vector<float> latents;
    text_to_image(*model_, request, progress, [&](const Picture& p) { latents = p.latents; });
    return latents;
  }
  int encoded(const Request& request) {
    const size_t before = model_->picture_cache.size();
    latents_of(request);
    return static_cast<int>(model_->picture_cache.size() - before);
  }

  Engine engine_{{.device = "cpu", .threads = 2, .profile = Profile::Exact}};
  std::unique_ptr<ModelSession> model_ = engine_.open(short_text_model(), {});
};

TEST_F(Edit, ReferencesAndTheirOrderMatter) {
  Request request = small_request();
  const auto alone = latents_of(request);
  const auto a = picture(64, 48, 0.1f), b = picture(32, 64, 0.07f);
  request.references = {a, b};
  const auto ab = latents_of(request);
  request.references = {b, a};
  const auto ba = latents_of(request);
  EXPECT_NE(alone, ab);
  EXPECT_NE(ab, ba);
}

TEST_F(Edit, ImageIsEncodedOnce) {
  Request request = small_request();
  request.references = {picture(64, 48, 0.1f), picture(32, 64, 0.07f)};
  request.batch = 2;
  EXPECT_EQ(encoded(request), 2);
  const auto before = latents_of(request);
  request.references = {picture(64, 48, 0.1f), picture(32, 64, 0.07f)};  // the same samples, copied
  request.prompt = "a blue dog";
  EXPECT_EQ(encoded(request), 0);
  request.prompt = "a red cat";
  EXPECT_EQ(latents_of(request), before);
  request.references[1] = picture(32, 64, 0.08f);
  EXPECT_EQ(encoded(request), 1);
}

TEST_F(Edit, ABatchEqualsSinglePictures) {
  Request request = small_request();
  request.references = {picture(64, 48, 0.1f)};
  request.batch = 2;
  const auto second = latents_of(request);
  request.batch = 1;
  request.seed += 1;
  EXPECT_EQ(latents_of(request), second);
}

TEST_F(Edit, SequentialGuidanceEqualsBatchedGuidance) {
  Request request = small_request();
  request.cfg = 3.0;
  request.references = {picture(64, 48, 0.1f)};
  const auto together = latents_of(request);
  model_->tokens_at_once = 0;
  EXPECT_EQ(latents_of(request), together);
}

TEST_F(Edit, NegativePassCanOmitReferences) {
  Request request = small_request();
  request.cfg = 3.0;
  request.references = {picture(64, 48, 0.1f)};
  const auto with = latents_of(request);
  request.negative_references = false;
  const auto without = latents_of(request);
  EXPECT_NE(with, without);
  // With guidance 1 the result is that of the positive pass, whatever the negative pass saw.
  request.cfg = 1.0;
  const auto one = latents_of(request);
  request.cfg.reset();
  const auto plain = latents_of(request);
  for (size_t i = 0; i < one.size(); ++i) ASSERT_NEAR(one[i], plain[i], 1e-5);
}

TEST_F(Edit, KeptReferencesServeEveryPromptAndSeed) {
  Request request = small_request();
  request.references = {picture(64, 48, 0.1f), picture(32, 64, 0.07f)};
  const auto plain = latents_of(request);
  request.reuse_reference_keys = true;
  const auto kept = latents_of(request);
  EXPECT_NE(kept, plain);
  const auto memory = model_->reference_memory;
  ASSERT_NE(memory, nullptr);
  request.prompt = "a blue dog", request.seed = 7;
  const auto other = latents_of(request);
  EXPECT_EQ(model_->reference_memory, memory);
  model_->reference_memory = nullptr;
  EXPECT_EQ(latents_of(request), other) << "remembered or computed again, it is the same";
  std::swap(request.references[0], request.references[1]);
  EXPECT_NE(latents_of(request), other);
  EXPECT_NE(model_->reference_memory, memory);
}

// In a model with an input for guidance, the blocks of the references see it, too.
TEST_F(Edit, KeptReferencesBelongToOneGuidance) {
  model_ = engine_.open(tiny_model("flux2-dev-tiny.safetensors"), {}, {.text_encoder = false});
  const int64_t width = model_->models.transformer.config().text_width;
  std::vector<float> states(static_cast<size_t>(8 * width));
  for (size_t i = 0; i < states.size(); ++i) states[i] = std::sin(0.3f * static_cast<float>(i));
  Request request = small_request();
  request.given_text = Tensor::host_copy(states.data(), DType::F32, {8, width});
  request.references = {picture(64, 48, 0.1f)};
  request.reuse_reference_keys = true;
  request.guidance = 4;
  latents_of(request);
  const auto memory = model_->reference_memory;
  request.guidance = 1;
  const auto later = latents_of(request);
  EXPECT_NE(model_->reference_memory->keys.back().k.to_floats(), memory->keys.back().k.to_floats());
  model_->reference_memory = nullptr;
  EXPECT_EQ(latents_of(request), later);
}

TEST_F(Edit, KeptReferencesOfABatchAreThoseOfSinglePictures) {
  Request request = small_request();
  request.references = {picture(64, 48, 0.1f)};
  request.reuse_reference_keys = true;
  request.cfg = 2.0;
  request.batch = 2;
  const auto second = latents_of(request);
  request.batch = 1;
  request.seed += 1;
  EXPECT_EQ(latents_of(request), second);
}

// Four references of the target's size: the second step does not compute them again.
// Step one computes four references, but not in the last of the model's three blocks, where nothing but their keys is needed.
TEST_F(Edit, LaterStepsAreShortWhenReferencesAreKept) {
  Request request = small_request();
  request.width = request.height = 256;
  for (int i = 0; i < 4; ++i) request.references.push_back(picture(256, 256, 0.01f * static_cast<float>(i + 1)));
  request.reuse_reference_keys = true;
  double best = 1;
  for (int attempt = 0; attempt < 5 && best > 0.45; ++attempt) {
    model_->reference_memory = nullptr;
    std::vector<std::clock_t> at;  // of the processor, which tests share
    Progress progress;
    progress.report = [&](Phase phase, int, int) {
      if (phase == Phase::Denoise) at.push_back(std::clock());
    };
    latents_of(request, progress);
    ASSERT_EQ(at.size(), 3u);
    best = std::min(best, static_cast<double>(at[2] - at[1]) / static_cast<double>(at[1] - at[0]));
  }
  fmt::print("step two takes {:.2f} of step one\n", best);
  EXPECT_LE(best, 0.45);
}

TEST_F(Edit, StrengthStartsFromTheNoisedImage) {
  Request request = small_request();
  request.steps = 4;
  const auto canvas = picture(64, 48, 0.1f);
  request.canvas = Canvas{canvas, 0.5};
  Trace trace;
  model_->trace = &trace;
  const auto half = latents_of(request);
  model_->trace = nullptr;
  const std::string path = testing::TempDir() + fmt::format("trace-strength-{}.safetensors", ::getpid());
  trace.save(path);
  const auto recorded = open_weights(path);
  const auto sigmas = recorded->open("timesteps").to_floats(), noise = recorded->open("noise").to_floats(),
             clean = recorded->open("canvas.latents").to_floats(), start = recorded->open("latents.0").to_floats();
  ASSERT_EQ(sigmas.size(), 3u);
  for (size_t i = 0; i < start.size(); ++i) ASSERT_NEAR(start[i], sigmas[0] * noise[i] + (1 - sigmas[0]) * clean[i], 1e-6);
  // With a mask that keeps everything, the result is the canvas.
  request.canvas->mask.assign(12, 0.0f);
  EXPECT_EQ(latents_of(request), clean);
  request.canvas->mask.assign(12, 1.0f);
  EXPECT_EQ(latents_of(request), half);
}

TEST_F(Edit, SamplersAgreeInTheLimit) {
  Request request = small_request();
  const auto distance = [](const std::vector<float>& a, const std::vector<float>& b) {
    double d = 0, n = 0;
    for (size_t i = 0; i < a.size(); ++i) d += std::pow(a[i] - b[i], 2), n += std::pow(b[i], 2);
    return std::sqrt(d / n);
  };
  request.schedule = parse_schedule("linear");
  request.steps = 16;
  const auto exact = latents_of(request);
  for (Sampler sampler : {Sampler::Heun, Sampler::Dpmpp2m}) {
    request.sampler = sampler;
    EXPECT_LT(distance(latents_of(request), exact), 0.15) << static_cast<int>(sampler);
  }
}

TEST_F(Edit, EncodingIsAPhaseThatCanBeStopped) {
  Request request = small_request();
  request.references = {picture(64, 48, 0.3f), picture(64, 48, 0.4f)};
  int done = -1;
  Progress progress;
  progress.report = [&](Phase phase, int step, int) { done = phase == Phase::EncodeReferences ? step : done; };
  progress.cancelled = [&] { return done == 1; };
  EXPECT_THROW(latents_of(request, progress), Error);
}

}  // namespace
}  // namespace flux2
