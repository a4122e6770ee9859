#include "train/batch_queue.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "train/data/make_caches.h"
#include "train/data/test_data.h"

namespace flux2 {
namespace {

using test::message_of;
using testing::HasSubstr;

// Five images in batches of two: three batches an epoch.
class Batches : public testing::Test {
 protected:
  Batches() {
    for (const char* name : {"a", "b", "c", "d", "e"}) folder.item(std::string("images/") + name, 64, 64, name);
    DatasetConfig config;
    config.image_directory = folder / "images";
    config.cache_directory = folder / "cache";
    config.caption_extension = ".txt";
    config.resolution = {64, 64};
    config.batch_size = 2;
    const auto datasets = list_datasets({config});
    CacheOptions options;
    options.encoder = "test";
    make_latent_caches(datasets, latent_tasks(datasets, model, options), model, test::mean_latents, options);
    make_text_caches(datasets, text_tasks(datasets, model, options), model, test::length_states, options);
    set.emplace(std::vector<DatasetConfig>{config}, model, Log());
  }

  static std::vector<FlowInputs> prepare(const LoadedBatch& batch) {
    const DrawTimestep half = [](const Sample&, LatentSize) { return Timestep{0.5f, 0.5f, 1.0}; };
    std::vector<FlowInputs> passes;
    passes.push_back(noised(batch, 42, FlowNoise::Training, half, DType::BF16));
    return passes;
  }

  test::DataFolder folder;
  CacheModel model = test::tiny_cache_model();
  std::optional<TrainingSet> set;
};

TEST_F(Batches, ComeInOrderAcrossTheEndsOfEpochs) {
  BatchQueue queue(*set, 42, {.epoch = 1, .micro = 1}, prepare);
  EXPECT_EQ(queue.per_epoch(), 3);
  for (int64_t micro = 4; micro < 13; ++micro) {
    const BatchPlan plan = set->epoch(42, micro / 3)[static_cast<size_t>(micro % 3)];
    const MicroStep got = queue.next();
    const FlowInputs expected = std::move(prepare(set->load(plan))[0]);
    ASSERT_EQ(got.passes.size(), 1u);
    EXPECT_EQ(got.samples, static_cast<double>(plan.samples.size()));
    EXPECT_EQ(got.passes[0].plan.samples[0].index, plan.samples[0].index);
    EXPECT_EQ(got.passes[0].x.to_floats(), expected.x.to_floats());
    EXPECT_EQ(got.passes[0].target, expected.target);
    EXPECT_EQ(got.passes[0].text.to_floats(), expected.text.to_floats());
    EXPECT_EQ(got.passes[0].text.dtype(), DType::BF16);
  }
}

// Two ranks share three batches: the second rank's last one repeats the first batch and is not computed.
TEST_F(Batches, ThatOnlyFillUpTheLastRoundAreEmpty) {
  BatchQueue first(*set, 42, {.rank = 0, .ranks = 2}, prepare), second(*set, 42, {.rank = 1, .ranks = 2}, prepare);
  const auto epoch = set->epoch(42, 0);
  const auto samples = [&](size_t i) { return static_cast<double>(epoch[i].samples.size()); };
  EXPECT_EQ(first.next().samples, samples(0) + samples(1));
  EXPECT_EQ(second.next().samples, samples(0) + samples(1));
  const MicroStep last = first.next(), filler = second.next();
  EXPECT_EQ(last.samples, samples(2));
  EXPECT_EQ(filler.samples, samples(2));
  EXPECT_EQ(last.passes.size(), 1u);
  EXPECT_TRUE(filler.passes.empty());
}

TEST_F(Batches, AreMadeAtLeastTwoAhead) {
  std::atomic<int> made = 0;
  BatchQueue queue(*set, 42, {}, [&](const LoadedBatch& batch) {
    ++made;
    return prepare(batch);
  });
  queue.next();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (made < 3 && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GE(made.load(), 3);
}

TEST_F(Batches, ThatCannotBeReadThrowAtTheirPlace) {
  const auto plans = set->epoch(42, 0);
  const std::string missing = set->items()[plans[1].samples[0].item].stem;
  std::filesystem::remove(folder / ("cache/" + missing + "_f2xtiny_te.safetensors"));
  BatchQueue queue(*set, 42, {}, prepare);
  queue.next();
  EXPECT_THAT(message_of([&] { queue.next(); }), HasSubstr(missing + "_f2xtiny_te.safetensors"));
}

}  // namespace
}  // namespace flux2
