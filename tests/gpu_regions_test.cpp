// Prompts of regions on a GPU: against the CPU, captured and not, and their time beside that of a plain step. Skipped without a
// GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "bench/bench_inputs.h"
#include "engine/backends.h"
#include "image/mask.h"
#include "pipeline/latents.h"
#include "pipeline/regions.h"
#include "tests/support/golden.h"

namespace flux2 {
namespace {

class GpuRegions : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu_count() == 0) GTEST_SKIP() << "no GPU on this machine";
  }

  static Region region(const std::string& prompt, int side, const Box& box) {
    Image mask(side, side, 1);
    add_box(mask, box);
    return {.prompt = prompt, .mask = std::make_shared<const Image>(std::move(mask))};
  }

  static Request small_request() {
    Request request;
    request.prompt = "a field";
    request.width = request.height = 128;
    request.steps = 2;
    request.regions = {region("a red circle", 128, {0, 0, 64, 128}), region("a blue square", 128, {64, 32, 64, 64})};
    return request;
  }

  static std::vector<float> latents_of(ModelSession& model, const Request& request) {
    std::vector<float> values;
    text_to_image(model, request, {}, [&](const Picture& p) { values = p.latents; });
    return values;
  }
};

TEST_F(GpuRegions, MatchTheCpu) {
  const Engine gpu({.device = "cuda", .profile = Profile::Exact}), cpu({.device = "cpu", .profile = Profile::Exact});
  const Request request = small_request();
  const auto a = latents_of(*gpu.open(tiny_model(), {}), request), b = latents_of(*cpu.open(tiny_model(), {}), request);
  ASSERT_EQ(a.size(), b.size());
  double square = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) square += std::pow(a[i] - b[i], 2), norm += std::pow(b[i], 2);
  EXPECT_LE(std::sqrt(square / norm), 1e-4);
}

TEST_F(GpuRegions, ReplayedStepsFollowTheRegions) {
  const Engine engine({.device = "cuda"});
  const auto model = engine.open(tiny_model(), {});
  Request request = small_request(), moved = request, plain = request;
  moved.regions[1] = region("a blue square", 128, {64, 48, 64, 64});  // groups of the same sizes, other tokens
  plain.regions.clear();
  model->capture = false;
  const auto first = latents_of(*model, request), second = latents_of(*model, moved), third = latents_of(*model, plain);
  EXPECT_NE(first, second);
  model->capture = true;
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(latents_of(*model, request), first) << round;
    EXPECT_EQ(latents_of(*model, moved), second) << round;
    EXPECT_EQ(latents_of(*model, plain), third) << round;
  }
}

// Four quadrants of 1024² with 512 tokens of text each. In 8 bits the products take a smaller part of the time.
class GpuRegionsTime : public GpuRegions, public testing::WithParamInterface<Quant> {};
INSTANTIATE_TEST_SUITE_P(Weights, GpuRegionsTime, testing::Values(Quant::None, Quant::Fp8),
                         [](const auto& test) { return test.param == Quant::None ? "bf16" : "fp8"; });

TEST_P(GpuRegionsTime, FourRegionsOfKlein4bTakeLittleLonger) {
  const Engine engine({.device = "cuda", .quant = GetParam()});
  if (engine.device().memory().available < int64_t{20} << 30) GTEST_SKIP() << "needs 20 GB";
  const auto model = engine.open_session(engine.random_model("klein-4b", {.text_encoder = false, .vae = false}));
  const auto transformer = model->models.transformer.get();
  const StepInputs plain = random_step(*model, {});

  Request request;
  constexpr int kHalf = 512;
  for (int i = 0; i < 4; ++i) request.regions.push_back(region("x", 2 * kHalf, {i % 2 * kHalf, i / 2 * kHalf, kHalf, kHalf}));
  const int64_t text_rows = 4 * int64_t{model->models.text_length};
  auto positions = text_positions(text_rows);
  const auto picture = picture_positions(request.rows(), request.columns());
  positions.insert(positions.end(), picture.begin(), picture.end());
  StepConditions regional;
  regional.text = transformer->embed_text(
      random_tensor(*model->stream, model->activations, {1, text_rows, transformer->config.text_width}, "text"));
  regional.guidance = plain.conditions.guidance;
  regional.rope = flux2_rope(*model->stream, positions);
  regional.groups = region_groups(*model->stream, request, RegionPass::Positive, text_rows, {}, regional.rope);
  ASSERT_TRUE(regional.groups);
  EXPECT_EQ(regional.groups->all.batches.size(), 1u);

  const auto step = [&](const StepConditions& conditions) {
    step_velocity(transformer, *model, conditions, plain.x, plain.time);
  };
  const auto milliseconds = [&](const StepConditions& conditions) {
    std::vector<double> times;
    for (int i = 0; i < 13; ++i) {
      model->stream->wait();
      const auto begin = std::chrono::steady_clock::now();
      step(conditions);
      model->stream->wait();
      times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    }
    std::sort(times.begin() + 3, times.end());  // the first ones are captured and warm up
    return times[8];
  };
  const double without = milliseconds(plain.conditions), with = milliseconds(regional);
  fmt::print("klein-4b, quant {}, 1024², one step: {:.2f} ms; with four regions {:.2f} ms, {:.3f} times that\n",
             name_of(GetParam()), without, with, with / without);
  model->capture = false;
  for (const auto* conditions : {&plain.conditions, static_cast<const StepConditions*>(&regional)}) {
    fmt::print("{}:", conditions->groups ? "regions" : "plain");
    for (const OpTime& op : model->stream->time_ops([&] { step(*conditions); }))
      if (op.seconds > 1e-4) fmt::print(" {} × {} {:.2f} ms;", op.calls, op.op, 1e3 * op.seconds);
    fmt::print("\n");
  }
  EXPECT_LE(with / without, 1.25);
}

}  // namespace
}  // namespace flux2
