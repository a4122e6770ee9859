// No Request can crash the engine: thousands of random ones, most of them absurd, are refused with InvalidArgument or run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <climits>
#include <cmath>
#include <filesystem>
#include <limits>

#include "base/rng.h"
#include "engine/image_prompt_adapter.h"
#include "tests/support/golden.h"
#include "tests/support/random_image_prompt.h"

namespace flux2 {
namespace {

constexpr int64_t kFeatureWidth = 8;  // of the vectors of image prompts

class RandomRequests {
 public:
  explicit RandomRequests(uint64_t seed) : seed_(seed) {}

  Request next() {
    Request r;
    // Most fields of most requests are valid. Otherwise every request would be refused for its first absurd field.
    r.width = r.height = 32;
    if (rarely()) r.width = one_of({-16, 0, 1, 15, 16, 17, 32, 48, 16400, INT_MAX, INT_MIN, INT_MAX - 15});
    if (rarely()) r.height = one_of({-16, 0, 1, 15, 16, 17, 32, 48, 16400, INT_MAX, INT_MIN, INT_MAX - 15});
    r.steps = 1;
    if (rarely()) r.steps = one_of({-1, 0, 1, 2, 1000, 1001, INT_MAX, INT_MIN});
    if (rarely()) r.batch = one_of({-1, 0, 1, 2, 1'000'000, 1'000'001, INT_MAX, INT_MIN});
    if (rarely()) r.guidance = number();
    if (rarely()) r.cfg = number();
    if (rarely()) r.shift = number();
    if (rarely()) r.seed = std::numeric_limits<uint64_t>::max() - below(3);
    r.sampler = one_of({Sampler::Euler, Sampler::Heun, Sampler::Dpmpp2m});
    if (rarely()) r.prompt = std::string(below(3000), 'a');
    if (rarely()) r.prompt = "\xff\xc0 not utf-8";
    if (rarely()) r.negative = std::string(5, '\0');
    if (rarely()) schedule(r.schedule);
    if (rarely()) r.noise.kind = one_of({NoiseSource::TorchCpu, NoiseSource::TorchCuda, NoiseSource::Grid});
    if (rarely()) r.noise.gpu = {one_of({-1, 0, 1, 132, INT_MAX}), one_of({-1, 0, 1, 256, 2048, INT_MAX})};
    if (rarely())
      for (uint64_t n = below(3); n > 0; --n) r.references.push_back(planes());
    r.reuse_reference_keys = rarely();
    if (rarely()) {
      r.canvas = Canvas{planes(), rarely() ? number() : 0.5};
      if (rarely()) r.canvas->mask.assign(one_of({size_t{1}, size_t{4}, size_t{5}}), static_cast<float>(number()));
    }
    if (rarely())
      for (uint64_t n = rarely() ? 17 : below(4); n > 0; --n) r.regions.push_back(region());
    if (rarely())
      for (uint64_t n = rarely() ? 65 : below(4); n > 0; --n) r.image_prompts.push_back(image_prompt());
    r.tile_x = rarely() && rarely();
    if (rarely()) r.given_text = tensor();
    if (rarely()) r.given_negative = tensor();
    if (rarely()) r.given_noise = tensor();
    if (rarely() && rarely()) r.given_latents = tensor();
    r.decode = !rarely();
    return r;
  }

 private:
  uint64_t below(uint64_t n) { return philox(seed_, count_++, 1)[0] % n; }
  bool rarely() { return below(8) == 0; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }
  double number() {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    return one_of({0.0, -0.0, 1.0, -1.0, 0.5, 4.0, 1e-300, 1e300, -1e300, kInf, -kInf, std::nan("")});
  }
  std::shared_ptr<const Planes> planes() {
    if (rarely()) return nullptr;
    const int width = one_of({16, 32, 32, 32, 0, -16, 17, INT_MAX}), height = one_of({16, 32, 32, 32, 0, -16, 17, INT_MAX});
    const bool small = width > 0 && height > 0 && width < 100 && height < 100;
    std::vector<float> values(small && !rarely() ? static_cast<size_t>(3 * width * height) : below(10), 0.25f);
    if (!values.empty() && rarely()) values.back() = static_cast<float>(number());
    return std::make_shared<const Planes>(Planes{width, height, std::move(values)});
  }
  Region region() {
    Region region{.prompt = rarely() ? "\xff" : "a fox", .mask = nullptr};
    if (!rarely()) {
      Image mask(one_of({1, 2, 32, 100}), one_of({1, 2, 32, 100}), rarely() ? 3 : 1);
      for (uint8_t& pixel : mask.pixels) pixel = one_of<uint8_t>({0, 255, 255});
      if (rarely()) mask.pixels.resize(below(5));
      if (rarely()) mask.width = one_of({0, -1, INT_MAX});
      region.mask = std::make_shared<const Image>(std::move(mask));
    }
    if (rarely()) region.references.push_back(planes());
    return region;
  }
  ImagePrompt image_prompt() {
    const auto value = static_cast<float>(rarely() ? number() : 0.5);
    return {.feature = std::vector<float>(rarely() ? below(20) : uint64_t{kFeatureWidth}, value),
            .strength = rarely() ? number() : 0.75,
            .from = rarely() ? number() : 0,
            .to = rarely() ? number() : 1};
  }
  Tensor tensor() {
    const int64_t width = one_of<int64_t>({0, 1, 2, 96, 128});
    Shape shape = one_of<Shape>({{}, {0}, {0, width}, {3, width}, {128, 2, 2}, {128, 2, 2}, {128, 0, 2}, {1, 128, 2, 2}});
    const Tensor t = Tensor::host_empty(one_of({DType::F32, DType::F32, DType::BF16, DType::I32}), shape);
    std::fill_n(static_cast<std::byte*>(t.raw()), static_cast<size_t>(t.bytes()), std::byte(rarely() ? 0xff : 0));
    return t;
  }
  void schedule(Schedule& s) {
    s.kind = one_of({Schedule::Model, Schedule::Linear, Schedule::Power, Schedule::Sigmas});
    s.power = number();
    for (uint64_t n = below(4); n > 0; --n) s.sigmas.push_back(static_cast<float>(number()));
    if (rarely()) s.sigmas = {1.0f, 0.5f, 0.0f};
  }

  uint64_t seed_, count_ = 0;
};

// A short text, so that a valid request takes milliseconds.
ModelFiles quick_model() {
  ModelFiles files = tiny_model();
  files.defaults.text_length = 8;
  return files;
}

std::filesystem::path adapter_for(const Session& session, ImagePromptForm form, const std::filesystem::path& file) {
  const Flux2Config& model = session.models.transformer.config();
  ImagePromptConfig config;
  config.feature_width = kFeatureWidth;
  config.hidden = model.hidden;
  config.form = form;
  config.double_blocks = form == ImagePromptForm::Decoupled ? model.double_blocks : 0;
  return test::write_random_image_prompt(file, config);
}

TEST(AnyRequest, IsRefusedOrRuns) {
  constexpr int kRequests = 3000;
  const Engine engine({.device = "cpu", .threads = 1});
  const auto session = engine.open(quick_model());
  const auto folder = std::filesystem::path(testing::TempDir());
  const std::array adapters = {adapter_for(*session, ImagePromptForm::Tokens, folder / "any-request-tokens.safetensors"),
                               adapter_for(*session, ImagePromptForm::Decoupled, folder / "any-request-keys.safetensors"),
                               std::filesystem::path()};
  RandomRequests random(42);
  int refused = 0, ran = 0, stopped = 0;
  for (int i = 0; i < kRequests; ++i) {
    if (i % 200 == 0) use_image_prompt(*session, adapters[static_cast<size_t>(i / 200) % adapters.size()]);
    const Request request = random.next();
    const auto start = std::chrono::steady_clock::now();
    Progress progress;
    progress.deadline = start + std::chrono::milliseconds(100);
    try {
      text_to_image(*session, request, progress, [](const Picture&) {});
      ++ran;
    } catch (const Error& e) {
      ++(e.code() == ErrorCode::Cancelled ? stopped : refused);
      // Very large guidance may overflow. That is an error of the request, not of the model files.
      EXPECT_TRUE(e.code() == ErrorCode::InvalidArgument || e.code() == ErrorCode::Cancelled ||
                  e.code() == ErrorCode::Incompatible)
          << i << ": " << name_of(e.code()) << ": " << e.what();
    } catch (const std::exception& e) {
      ADD_FAILURE() << i << ": " << e.what();
    }
    ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << i;
  }
  fmt::print("{} requests: {} refused, {} ran, {} stopped by their deadline\n", kRequests, refused, ran, stopped);
  EXPECT_GT(refused, kRequests / 10);
  EXPECT_GT(ran, kRequests / 20);
}

// What was computed before a request failed does not change the next one.
TEST(AnyRequest, LeavesNothingBehind) {
  const Engine engine({.device = "cpu", .threads = 1, .profile = Profile::Exact});
  Request good;
  good.prompt = "a fox";
  good.width = good.height = 32;
  good.steps = 1;
  const auto picture_of = [&](Session& session) {
    std::vector<float> latents;
    text_to_image(session, good, {}, [&](const Picture& p) { latents = p.latents; });
    return latents;
  };
  const auto fresh = engine.open(quick_model());
  const std::vector<float> expected = picture_of(*fresh);
  const auto used = engine.open(quick_model());
  RandomRequests random(7);
  for (int i = 0; i < 200; ++i) {
    Progress progress;
    progress.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    try {
      text_to_image(*used, random.next(), progress, [](const Picture&) {});
    } catch (const Error&) {}
  }
  EXPECT_EQ(picture_of(*used), expected);
}

}  // namespace
}  // namespace flux2
