// Whole-engine properties of a GPU; skipped where there is none.
#include <gtest/gtest.h>

#include <cmath>

#include "bench/bench_inputs.h"
#include "engine/backends.h"
#include "pipeline/noise.h"
#include "tests/support/golden.h"
#include "weights/safetensors_writer.h"

namespace flux2 {
namespace {

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu_count() == 0) GTEST_SKIP() << "no GPU on this machine";
  }
};

Request small_request() {
  Request request;
  request.prompt = "a red circle";
  request.width = request.height = 128;
  request.steps = 2;
  request.noise = parse_noise("torch-cuda");
  return request;
}

std::vector<float> picture_of(ModelSession& model, const Request& request) {
  std::vector<float> values;
  text_to_image(model, request, {}, [&](const Picture& p) { values = p.decoded.planes().values; });
  return values;
}

TEST_F(GpuTest, NoiseIsBitIdenticalToPyTorch) {
  const Engine engine({.device = "cuda"});
  const auto geometry = engine.device().random_geometry();
  ASSERT_TRUE(geometry);
  if (geometry->multiprocessors != 132 || geometry->threads_per_multiprocessor != 2048)
    GTEST_SKIP() << "the reference is an H200";
  const auto stream = engine.device().shared_from_this()->open_stream();
  const Golden file("noise.safetensors");
  const NoiseSource source = parse_noise("torch-cuda").on(engine.device());
  for (uint64_t seed : {uint64_t{0}, uint64_t{42}, uint64_t{2147483653}, uint64_t{123456789012345}})
    for (int size : {32, 64, 128}) {
      const auto mine = make_noise(source, seed, 128, size, size, stream.get());
      const auto places = file[fmt::format("cuda.index.{}", size)].to_ints();
      const auto expected = file[fmt::format("cuda.f32.{}.{}", size, seed)].to_floats();
      for (size_t i = 0; i < places.size(); ++i)
        ASSERT_EQ(mine[static_cast<size_t>(places[i])], expected[i]) << seed << ", " << size;
    }
}

// 8-bit pixels are computed on the device. Tests values near every rounding boundary and outside the range.
TEST_F(GpuTest, PixelsMatchTheHost) {
  const Engine engine({.device = "cuda"});
  const auto stream = engine.device().shared_from_this()->open_stream();
  std::vector<float> values;
  for (int level = -3; level <= 259; ++level)
    for (float scale : {127.5f, 255.0f})
      for (int nudge = -2; nudge <= 2; ++nudge) {
        float x = static_cast<float>(level) / scale * (scale > 200 ? 2.0f : 1.0f) - 1.0f;
        for (int i = 0; i < std::abs(nudge); ++i) x = std::nextafter(x, nudge < 0 ? -9.0f : 9.0f);
        values.push_back(x);
      }
  for (float odd : {INFINITY, -INFINITY, 0.0f}) values.push_back(odd);
  values.resize(values.size() / 3 * 3);
  const auto pixels = static_cast<int64_t>(values.size() / 3);
  const DecodedPicture picture(Tensor::from<float>(*stream, DType::F32, {1, 1, pixels, 3}, values));
  const DecodedPicture on_host(picture.planes());
  for (Rounding rounding : {Rounding::Trunc, Rounding::Nearest}) EXPECT_EQ(picture.rgb8(rounding), on_host.rgb8(rounding));
  EXPECT_FALSE(picture.has_nan());
  EXPECT_FALSE(picture.is_black());
  values[4] = NAN;
  EXPECT_TRUE(DecodedPicture(Tensor::from<float>(*stream, DType::F32, {1, 1, pixels, 3}, values)).has_nan());
  EXPECT_TRUE(DecodedPicture(Tensor::from<float>(*stream, DType::F32, {1, 1, 1, 3}, std::vector<float>{-1, -1, -3})).is_black());
}

TEST_F(GpuTest, TwoRunsGiveTheSameBytes) {
  const Engine engine({.device = "cuda"});
  const auto first = engine.open(tiny_model(), {}), second = engine.open(tiny_model(), {});
  const Request request = small_request();
  const auto a = picture_of(*first, request);
  EXPECT_EQ(a, picture_of(*first, request)) << "replayed";
  EXPECT_EQ(a, picture_of(*second, request)) << "another session";
}

// A replayed step reads the kept references in place.
TEST_F(GpuTest, KeptReferencesGiveTheSameBytes) {
  const Engine engine({.device = "cuda"});
  const auto model = engine.open(tiny_model(), {});
  Request request = small_request();
  request.steps = 4;
  request.reuse_reference_keys = true;
  const auto picture = [](int width, float value) {
    return std::make_shared<const Planes>(Planes{width, 64, std::vector<float>(static_cast<size_t>(3 * width * 64), value)});
  };
  request.references = {picture(64, 0.3f), picture(96, -0.5f)};
  const auto replayed = picture_of(*model, request);
  model->capture = false;
  EXPECT_EQ(picture_of(*model, request), replayed);
  model->capture = true;
  std::swap(request.references[0], request.references[1]);
  EXPECT_NE(picture_of(*model, request), replayed) << "the memory of another list";
  std::swap(request.references[0], request.references[1]);
  EXPECT_EQ(picture_of(*model, request), replayed);
}

// A captured step contains the strength of the adapter, so it must not be replayed after the strength has changed.
TEST_F(GpuTest, StrengthsOfAdaptersAreNotReplayed) {
  const auto path = std::filesystem::path(testing::TempDir()) / "flux2_gpu_adapter.safetensors";
  const auto values = [](int64_t count, float scale) {
    std::vector<float> list;
    for (int64_t i = 0; i < count; ++i) list.push_back(scale * std::sin(static_cast<float>(i * 37 % 101)));
    return list;
  };
  const Flux2Config config = detect_flux2({open_weights(tiny_model().transformer), ModelPart::Transformer});
  const int64_t h = config.hidden, r = 4;
  save_tensors(
      path,
      {{"single_blocks.0.linear1.lora_A.weight", Tensor::host_copy(values(r * h, 0.1f).data(), DType::F32, {r, h})},
       {"single_blocks.0.linear1.lora_B.weight", Tensor::host_copy(values(9 * h * r, 0.1f).data(), DType::F32, {9 * h, r})}});
  const Engine engine({.device = "cuda"});
  const auto model = engine.open(tiny_model(), {});
  const Request request = small_request();
  std::map<double, std::vector<float>> made;
  for (const double strength : {0.0, 0.5, 1.0, 0.5, 0.0}) {
    engine.use_adapters(*model, {{path, strength}});
    picture_of(*model, request);
    const auto replayed = picture_of(*model, request);
    const auto [known, is_new] = made.emplace(strength, replayed);
    EXPECT_EQ(known->second, replayed) << strength;
    if (is_new) {
      const Engine fresh({.device = "cuda", .adapters = {{path, strength}}});
      EXPECT_EQ(picture_of(*fresh.open(tiny_model(), {}), request), replayed) << strength;
    }
  }
  EXPECT_NE(made[0.5], made[1.0]);
  EXPECT_NE(made[0.0], made[0.5]);
}

TEST_F(GpuTest, MemoryDoesNotGrow) {
  const Engine engine({.device = "cuda"});
  const auto model = engine.open(tiny_model(), {});
  const Stream& stream = *model->stream;
  Request request = small_request();
  // Sizes and prompts alternate, so that captured work is created and discarded. Both counts are taken after a whole number of
  // rounds, when the same sizes are cached.
  const auto generate = [&](int i) {
    request.seed = static_cast<uint64_t>(i);
    request.width = 64 + 16 * (i % 9);
    request.prompt = fmt::format("picture {}", i % 36);
    picture_of(*model, request);
  };
  for (int i = 0; i < 72; ++i) generate(i);
  const size_t used = stream.used_bytes(), peak = stream.peak_bytes();
  for (int i = 72; i < 252; ++i) generate(i);
  EXPECT_LE(stream.used_bytes(), used + used / 20);
  EXPECT_LE(stream.peak_bytes(), peak + peak / 20);
  fmt::print("180 generations: used {} → {} bytes, peak {} → {}\n", used, stream.used_bytes(), peak, stream.peak_bytes());
}

// Streamed blocks give the same results as resident ones.
TEST_F(GpuTest, StreamedBlocksGiveTheSameBytes) {
  const Request request = small_request();
  const Engine whole({.device = "cuda"}), streaming({.device = "cuda", .offload = Offload::Stream});
  const auto resident = whole.open(tiny_model(), {}), streamed = streaming.open(tiny_model(), {});
  const auto expected = picture_of(*resident, request);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(expected, picture_of(*streamed, request)) << "picture " << i;
  EXPECT_NE(streamed->models.transformer.get()->schedule, nullptr);
}

TEST_F(GpuTest, EncoderIsUnloadedAndReloaded) {
  Request request = small_request();
  const Engine whole({.device = "cuda"}), leaving({.device = "cuda", .offload = Offload::Encoder});
  const auto resident = whole.open(tiny_model(), {}), alone = leaving.open(tiny_model(), {});
  for (const char* prompt : {"a red circle", "a blue square"}) {
    request.prompt = prompt;
    EXPECT_EQ(picture_of(*resident, request), picture_of(*alone, request)) << prompt;
    EXPECT_FALSE(alone->models.text_encoder.is_loaded());
  }
}

TEST_F(GpuTest, MemoryLimitIsKept) {
  const int64_t limit = int64_t{64} << 20;
  const Engine engine({.device = "cuda", .memory_limit = limit});
  const auto stream = engine.device().open_stream();
  EXPECT_LE(engine.device().memory().available, limit);
  const Tensor half = Tensor::empty(*stream, DType::U8, {limit / 2});
  EXPECT_THROW(Tensor::empty(*stream, DType::U8, {limit}), Error);
  EXPECT_LE(engine.device().memory().available, limit / 2);
}

// Large enough to use our own products and the fastest ones of the libraries.
TEST_F(GpuTest, ACapturedStepOfKlein4bGivesTheSameBytes) {
  const Engine engine({.device = "cuda"});
  if (engine.device().memory().available < int64_t{20} << 30) GTEST_SKIP() << "needs 20 GB";
  const auto model = engine.open_session(engine.random_model("klein-4b", {.text_encoder = false, .vae = false}));
  const auto transformer = model->models.transformer.get();
  const auto [conditions, x, time] = random_step(*model, {});
  Session& session = *model;
  session.capture = false;
  const auto plain = step_velocity(transformer, session, conditions, x, time).to_floats();
  EXPECT_EQ(plain, step_velocity(transformer, session, conditions, x, time).to_floats()) << "run again";
  session.capture = true;
  EXPECT_EQ(plain, step_velocity(transformer, session, conditions, x, time).to_floats()) << "captured";
  EXPECT_EQ(plain, step_velocity(transformer, session, conditions, x, time).to_floats()) << "replayed";
}

}  // namespace
}  // namespace flux2
