// Sessions that share a model: each gives its own results, whatever the others do at the same time.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "backend/cpu/cpu_stream.h"
#include "engine/backends.h"
#include "pipeline/tiles.h"
#include "tests/support/golden.h"
#include "weights/safetensors_writer.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;

Tensor matrix(int64_t rows, int64_t columns, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(rows * columns));
  uint32_t state = seed * 2654435761u + 1;
  for (float& v : values) v = 0.05f * (static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1.0f);
  return Tensor::host_copy(values.data(), DType::F32, {rows, columns});
}

fs::path write_adapter(const std::string& name, const std::vector<std::pair<std::string, Tensor>>& tensors) {
  const fs::path path = fs::path(testing::TempDir()) / fmt::format("flux2_session_{}_{}.safetensors", name, ::getpid());
  save_tensors(path, tensors);
  return path;
}

constexpr int64_t kWidth = 256;  // of the tiny model

// A LoRA on two layers.
fs::path lora(const std::string& name, uint32_t seed) {
  return write_adapter(name, {{"single_blocks.0.linear1.lora_A.weight", matrix(4, kWidth, seed)},
                              {"single_blocks.0.linear1.lora_B.weight", matrix(9 * kWidth, 4, seed + 1)},
                              {"double_blocks.0.img_attn.proj.lora_A.weight", matrix(4, kWidth, seed + 2)},
                              {"double_blocks.0.img_attn.proj.lora_B.weight", matrix(kWidth, 4, seed + 3)}});
}

// A LoKr, which must be merged into the weights.
fs::path lokr() {
  return write_adapter("lokr", {{"lycoris_single_transformer_blocks_0_attn_to_out.lokr_w1", matrix(4, 4, 1)},
                                {"lycoris_single_transformer_blocks_0_attn_to_out.lokr_w2", matrix(kWidth / 4, kWidth, 2)}});
}

Request small_request(const std::string& prompt = "a red circle") {
  Request request;
  request.prompt = prompt;
  request.width = request.height = 64;
  request.steps = 2;
  return request;
}

std::vector<float> picture_of(Session& session, const Request& request, const Progress& progress = {}) {
  std::vector<float> values;
  text_to_image(session, request, progress, [&](const Picture& p) { values = p.decoded.planes().values; });
  return values;
}

std::vector<std::string> devices() {
  std::vector<std::string> names = {"cpu"};
  if (gpu_count() > 0) names.push_back("cuda");
  return names;
}

// The images of several sessions on one model at the same time, each on its own thread; two images each.
struct Caller {
  std::vector<AdapterChoice> adapters;
  Request request;
};

void expect_each_its_own(const EngineOptions& options, const std::vector<Caller>& callers) {
  const Engine engine(options);
  std::vector<std::vector<float>> alone;
  for (const Caller& c : callers) {
    const auto session = engine.open(short_text_model());
    engine.use_adapters(*session, c.adapters);
    alone.push_back(picture_of(*session, c.request));
  }
  for (size_t i = 1; i < alone.size(); ++i) ASSERT_NE(alone[0], alone[i]) << "the adapters do something";

  const auto model = engine.load(short_text_model(), {});
  std::vector<std::vector<float>> together(2 * callers.size());
  std::atomic<int> failures = 0;
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < callers.size(); ++i)
      threads.emplace_back([&, i] {
        try {
          const auto session = engine.open_session(model);
          engine.use_adapters(*session, callers[i].adapters);
          for (size_t k = 0; k < 2; ++k) together[2 * i + k] = picture_of(*session, callers[i].request);
        } catch (const std::exception& e) {
          ++failures;
          ADD_FAILURE() << e.what();
        }
      });
  }
  ASSERT_EQ(failures, 0);
  for (size_t i = 0; i < together.size(); ++i) EXPECT_EQ(together[i], alone[i / 2]) << "caller " << i / 2;
}

TEST(Sessions, WithDifferentAdaptersDoNotAffectEachOther) {
  const fs::path first = lora("first", 10), second = lora("second", 20), third = lokr();
  const std::vector<Caller> callers = {{{{first, 1.0}}, small_request()},
                                       {{{second, 0.7}}, small_request()},
                                       {{{third, 1.0}}, small_request()},
                                       {{}, small_request("a blue square")}};
  for (const std::string& device : devices()) {
    expect_each_its_own({.device = device, .threads = 2}, callers);
    expect_each_its_own({.device = device, .threads = 2, .quant = Quant::Int8}, {callers[0], callers[1]});
  }
}

TEST(Sessions, WithMergedAdaptersDoNotAffectEachOther) {
  const fs::path first = lora("first", 10), second = lora("second", 20);
  const std::vector<Caller> callers = {{{{first, 1.0}}, small_request()}, {{{second, 0.7}}, small_request()}};
  for (const std::string& device : devices())
    expect_each_its_own({.device = device, .threads = 2, .adapter_mode = AdapterMode::Merge}, callers);
}

TEST(Sessions, OnAStreamedModelDoNotAffectEachOther) {
  const fs::path first = lora("first", 10), second = lokr();
  const std::vector<Caller> callers = {{{{first, 1.0}}, small_request()}, {{{second, 1.0}}, small_request()}};
  for (const std::string& device : devices())
    expect_each_its_own({.device = device, .threads = 2, .offload = Offload::Stream}, callers);
}

// A session may be moved between threads and outlive the engine that opened it: it holds no pointer to the engine.
TEST(Sessions, OutliveTheirEngine) {
  std::unique_ptr<ModelSession> session;
  std::vector<float> expected;
  {
    const Engine engine({.device = "cpu", .threads = 2});
    expected = picture_of(*engine.open(short_text_model()), small_request());
    session = engine.open(short_text_model());
  }
  std::vector<float> made;
  std::jthread([&] { made = picture_of(*session, small_request()); }).join();
  EXPECT_EQ(made, expected);
}

// A copy of the tiny model's autoencoder under another name: another file with the same values.
ModelFiles with_other_vae() {
  ModelFiles files = short_text_model();
  const fs::path copy = fs::path(testing::TempDir()) / fmt::format("flux2_session_vae_{}.safetensors", ::getpid());
  fs::copy_file(files.vae, copy, fs::copy_options::overwrite_existing);
  files.vae = copy;
  return files;
}

TEST(Reload, OnlyChangedFilesAreLoadedAgain) {
  const Engine engine({.device = "cpu", .threads = 2, .quant = Quant::Int8});
  const auto first = engine.load(short_text_model(), {});
  const auto transformer = first->models.transformer.get();
  const auto same = engine.load(short_text_model(), {}, {}, first);
  EXPECT_EQ(same->models.vae, first->models.vae);
  EXPECT_EQ(same->models.transformer.get(), transformer);
  const auto swapped = engine.load(with_other_vae(), {}, {}, same);
  EXPECT_NE(swapped->models.vae, first->models.vae);
  EXPECT_EQ(swapped->models.transformer.get(), transformer) << "not quantised again";
  EXPECT_EQ(picture_of(*engine.open_session(swapped), small_request()), picture_of(*engine.open_session(first), small_request()));

  EXPECT_NE(engine.load(short_text_model(), {})->models.transformer.get(), transformer) << "nothing to take it from";
  const Engine other({.device = "cpu", .threads = 2});
  EXPECT_NE(other.load(short_text_model(), {}, {}, first)->models.transformer.get(), transformer) << "of another engine";
}

}  // namespace
}  // namespace flux2
