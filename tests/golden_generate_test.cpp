// Whole generations in profile exact against the reference's traces.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <map>
#include <optional>

#include "base/json.h"
#include "engine/backends.h"
#include "ops/view.h"
#include "pipeline/texts_to_images.h"
#include "tests/support/golden.h"

namespace flux2 {
namespace {

Request request_from(const Json& j) {
  Request r;
  r.prompt = j.at("prompt");
  r.height = j.at("hw")[0];
  r.width = j.at("hw")[1];
  r.steps = j.at("steps");
  r.seed = j.at("seed");
  if (j.contains("cfg_scale")) r.cfg = j.at("cfg_scale").get<double>();
  return r;
}

// Every tensor of the reference's trace must be in ours; returns the worst relative error.
double compare_traces(const Golden& reference, const std::string& ours, double limit, double step_limit) {
  const auto mine = open_weights(ours);
  double worst = 0;
  for (const std::string& name : reference.names()) {
    const StoredTensor* found = mine->find(name);
    EXPECT_NE(found, nullptr) << name << " is not in the trace";
    if (!found) continue;
    const Difference d = difference(mine->open(name).to_doubles(), reference[name].to_doubles());
    EXPECT_LE(d.relative, name.starts_with("velocity") ? step_limit : limit) << name << ": " << d.str();
    worst = std::max(worst, d.relative);
  }
  return worst;
}

double run_and_compare(const std::string& device, const std::string& name, double limit) {
  const Engine engine({.device = device, .threads = 2, .profile = Profile::Exact});
  const auto model = engine.open(tiny_model(), {});
  Request request = request_from(read_json(golden_path("generate.json")).at(name));
  const Golden reference("generate-" + name + ".safetensors");
  for (int k = 0; reference.has(fmt::format("refs.{}.image", k)); ++k) {
    const Tensor image = reference[fmt::format("refs.{}.image", k)];
    request.references.push_back(std::make_shared<const Planes>(
        Planes{static_cast<int>(image.dim(2)), static_cast<int>(image.dim(1)), image.to_floats()}));
  }
  Trace trace;
  model->trace = &trace;
  int pictures = 0;
  text_to_image(*model, request, {}, [&](const Picture&) { ++pictures; });
  EXPECT_EQ(pictures, 1);
  const std::string path = testing::TempDir() + fmt::format("trace-{}-{}.safetensors", name, ::getpid());
  trace.save(path);
  const double worst = compare_traces(reference, path, limit, limit);
  fmt::print("generate-{} on {}: worst {:.2g}\n", name, device, worst);
  return worst;
}

class GoldenGenerateOn : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Devices, GoldenGenerateOn,
                         testing::ValuesIn(gpu_count() > 0 ? std::vector<std::string>{"cpu", "cuda"}
                                                           : std::vector<std::string>{"cpu"}),
                         [](const auto& test) { return test.param; });

TEST_P(GoldenGenerateOn, TextToImage) { EXPECT_LE(run_and_compare(GetParam(), "t2i", 1e-4), 1e-4); }
TEST_P(GoldenGenerateOn, Edit) { EXPECT_LE(run_and_compare(GetParam(), "edit", 1e-4), 1e-4); }
TEST_P(GoldenGenerateOn, TrueGuidance) { EXPECT_LE(run_and_compare(GetParam(), "cfg", 1e-4), 1e-4); }

// The reference in bf16, one step from its own latents with its rounding of the time: bf16 arithmetic on our side.
TEST(GoldenGenerate, Bf16StepsUnderTheReferencesTimeRounding) {
  const Engine engine({.device = "cpu", .threads = 2, .profile = Profile::Fast});
  const auto model = engine.open(tiny_model(), {});
  const Golden g("generate-t2i-bf16.safetensors");
  Request request = request_from(read_json(golden_path("generate.json")).at("t2i"));
  request.time_rounding = TimeRounding::Bfl;
  request.given_text = g["text.embeddings"];
  const auto sigmas = g["timesteps"].to_floats();
  for (size_t k = 0; k + 1 < sigmas.size(); ++k) {
    request.schedule = {.kind = Schedule::Sigmas, .sigmas = {sigmas[k], 0.0f}};
    request.given_noise = g[fmt::format("latents.{}", k)];
    Trace trace;
    model->trace = &trace;
    text_to_image(*model, request, {}, [](const Picture&) {});
    const std::string path = testing::TempDir() + fmt::format("trace-bf16-{}.safetensors", ::getpid());
    trace.save(path);
    const Difference d =
        difference(open_weights(path)->open("velocity.0").to_doubles(), g[fmt::format("velocity.{}", k)].to_doubles());
    EXPECT_LE(d.relative, 2e-2) << "step " << k << ": " << d.str();
    fmt::print("bf16 step {}: {:.2g}\n", k, d.relative);
  }
}

// Image k of a batch is bit-identical to the single image with seed + k.
TEST(Batch, EqualsSinglePicturesInExact) {
  const Engine engine({.device = "cpu", .threads = 2, .profile = Profile::Exact});
  const auto model = engine.open(tiny_model(), {});
  Request request = request_from(read_json(golden_path("generate.json")).at("cfg"));
  request.steps = 2;
  request.batch = 3;
  std::vector<Picture> together, alone;
  text_to_image(*model, request, {}, [&](Picture p) { together.push_back(std::move(p)); });
  for (int k = 0; k < 3; ++k) {
    Request one = request;
    one.batch = 1;
    one.seed = request.seed + static_cast<uint64_t>(k);
    text_to_image(*model, one, {}, [&](Picture p) { alone.push_back(std::move(p)); });
  }
  ASSERT_EQ(together.size(), 3u);
  for (size_t k = 0; k < 3; ++k) {
    EXPECT_EQ(together[k].seed, alone[k].seed);
    EXPECT_EQ(together[k].decoded.planes().values, alone[k].decoded.planes().values) << "picture " << k;
  }
}

// Requests of several people, computed as one batch, give each of them the images of their own request. So does a batch that is
// computed in groups, where the noise of a group is drawn during the one before.
TEST(Batch, OfSeveralPromptsEqualsSinglePicturesInExact) {
  const Engine engine({.device = "cpu", .threads = 2, .profile = Profile::Exact});
  const auto session = engine.open(tiny_model());
  const int64_t all_at_once = session->tokens_at_once;
  for (const auto& [cfg, tokens_at_once] : std::vector<std::pair<std::optional<double>, int64_t>>{
           {std::nullopt, all_at_once}, {2.5, all_at_once}, {std::nullopt, 2000}, {std::nullopt, 1}, {2.5, 1}}) {
    session->tokens_at_once = tokens_at_once;
    std::vector<Request> requests(3);
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].prompt = "prompt number " + std::to_string(i);
      requests[i].negative = "not " + std::to_string(i);
      requests[i].width = 64, requests[i].height = 96;
      requests[i].steps = 2;
      requests[i].cfg = cfg;
      requests[i].seed = 100 * i;
    }
    requests[1].batch = 2;
    requests[2].noise.kind = NoiseSource::Grid;
    std::map<std::pair<size_t, int>, std::vector<float>> together;
    texts_to_images(*session, requests, {}, [&](size_t request, const Picture& picture) {
      EXPECT_EQ(picture.seed, requests[request].seed + static_cast<uint64_t>(picture.index));
      together[{request, picture.index}] = picture.decoded.planes().values;
    });
    ASSERT_EQ(together.size(), 4u);
    for (size_t i = 0; i < requests.size(); ++i)
      text_to_image(*session, requests[i], {}, [&](const Picture& picture) {
        EXPECT_EQ(picture.decoded.planes().values, (together[{i, picture.index}])) << i << " " << picture.index;
      });
  }
}

TEST(Batch, RefusesRequestsThatDiffer) {
  const Engine engine({.device = "cpu", .threads = 2});
  const auto session = engine.open(tiny_model());
  Request one, other;
  for (Request* request : {&one, &other}) request->prompt = "x", request->width = request->height = 64, request->steps = 1;
  EXPECT_TRUE(can_run_together(one, other));
  other.height = 96;
  EXPECT_FALSE(can_run_together(one, other));
  const std::vector<Request> both = {one, other};
  EXPECT_THROW(texts_to_images(*session, both, {}, [](size_t, const Picture&) {}), Error);
}

TEST(Session, CachesPromptsAndCanBeStopped) {
  const Engine engine({.device = "cpu", .threads = 2, .profile = Profile::Exact});
  const auto model = engine.open(tiny_model(), {});
  Request request = request_from(read_json(golden_path("generate.json")).at("t2i"));
  text_to_image(*model, request, {}, [](const Picture&) {});
  EXPECT_TRUE(model->prompt_cache.contains(request.prompt));

  int steps = 0;
  Progress progress;
  progress.report = [&](Phase phase, int step, int) { steps = phase == Phase::Denoise ? step : steps; };
  progress.cancelled = [&] { return steps == 2; };
  int pictures = 0;
  try {
    text_to_image(*model, request, progress, [&](const Picture&) { ++pictures; });
    FAIL() << "it should have stopped";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::Cancelled);
  }
  EXPECT_EQ(pictures, 0);
}

// A tile does not see beyond its edge, so the images differ slightly; the seam must not be visible.
TEST(Generate, TiledDecodingIsCloseToTheWhole) {
  const Engine engine({.device = "cpu", .threads = 2});
  const auto model = engine.open(tiny_model(), {});
  Request request;
  request.prompt = "a red circle";
  request.width = 320, request.height = 256;
  request.steps = 1;
  std::vector<float> whole, tiled;
  text_to_image(*model, request, {}, [&](const Picture& p) { whole = p.decoded.planes().values; });
  model->decode_tile = 12;
  text_to_image(*model, request, {}, [&](const Picture& p) { tiled = p.decoded.planes().values; });
  ASSERT_EQ(whole.size(), tiled.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < whole.size(); ++i) difference += std::pow(whole[i] - tiled[i], 2), size += std::pow(whole[i], 2);
  const double relative = std::sqrt(difference / size);
  fmt::print("tiles of 192 pixels: {:.2g} from the whole\n", relative);
  EXPECT_GT(relative, 0.0) << "nothing was tiled";
  EXPECT_LT(relative, 0.25);
}

}  // namespace
}  // namespace flux2
