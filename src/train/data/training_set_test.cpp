#include "train/data/training_set.h"

#include <gmock/gmock.h>

#include <map>
#include <set>

#include "train/data/make_caches.h"
#include "train/data/test_data.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using test::DataFolder;
using test::message_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Three datasets: 0 with two buckets and repeats, 1 for validation, 2 with one bucket.
class TrainingData : public testing::Test {
 protected:
  TrainingData() {
    for (const char* name : {"0/a", "0/c", "0/e", "1/v", "1/w", "2/x", "2/y", "2/z"}) folder.item(name, 64, 64, name);
    for (const char* name : {"0/b", "0/d"}) folder.item(name, 96, 48, name);
    for (int d = 0; d < 3; ++d) {
      DatasetConfig config;
      config.image_directory = folder / std::to_string(d);
      config.cache_directory = folder / ("cache" + std::to_string(d));
      config.caption_extension = ".txt";
      config.resolution = {64, 64};
      config.enable_bucket = true;
      config.batch_size = 2;
      config.num_repeats = d == 0 ? 2 : 1;
      config.validation = d == 1;
      configs.push_back(config);
    }
  }

  TrainingSet made(const Log& log = {}) {
    const auto datasets = list_datasets(configs);
    CacheOptions options;
    options.encoder = "test";
    make_latent_caches(datasets, latent_tasks(datasets, model, options), model, test::mean_latents, options);
    make_text_caches(datasets, text_tasks(datasets, model, options), model, test::length_states, options);
    return TrainingSet(configs, model, log);
  }

  static std::string order_of(const TrainingSet& set, const std::vector<BatchPlan>& plans) {
    std::string order;
    for (const BatchPlan& plan : plans) {
      order += order.empty() ? "" : " ";
      for (const Sample& sample : plan.samples) order += set.items()[sample.item].stem;
    }
    return order;
  }

  DataFolder folder;
  std::vector<DatasetConfig> configs;
  CacheModel model = test::tiny_cache_model();
};

TEST_F(TrainingData, CountsItemsSamplesAndBatches) {
  const TrainingSet set = made();
  EXPECT_EQ(set.items().size(), 10u);
  EXPECT_EQ(set.training_items(), 8);
  EXPECT_EQ(set.samples_per_epoch(), 13);
  EXPECT_EQ(set.batches_per_epoch(), 3 + 2 + 2);
  EXPECT_EQ(set.largest_tokens(), 16);
  EXPECT_FALSE(set.has_references());
  EXPECT_TRUE(set.has_validation());
}

// Computed by an independent script from the rules of the generator and the shuffle.
TEST_F(TrainingData, OrderIsAFunctionOfSeedAndEpoch) {
  const TrainingSet set = made();
  EXPECT_EQ(order_of(set, set.epoch(42, 0)), "zy ce bd ec db x aa");
  EXPECT_EQ(order_of(set, set.epoch(42, 3)), "ee bd xy z ac ca bd");
  EXPECT_EQ(order_of(set, set.epoch(42, 0)), "zy ce bd ec db x aa");
  EXPECT_EQ(order_of(set, set.validation()), "vw");
}

TEST_F(TrainingData, SampleIndicesAndDrawsFollowTheOrder) {
  for (DatasetConfig& config : configs) {
    config.caption_dropout_rate = 0.3;
    config.flip_aug = true;
    config.shuffle_tags = true;
  }
  for (const char* name : {"0/a", "0/b", "0/c", "0/d", "0/e", "2/x", "2/y", "2/z"})
    folder.text(std::string(name) + ".txt", "p, q, r");
  const auto datasets = list_datasets(configs, {.caption_variants = 3});
  CacheOptions options;
  make_text_caches(datasets, text_tasks(datasets, model, options), model, test::length_states, options);
  make_latent_caches(datasets, latent_tasks(datasets, model, options), model, test::mean_latents, options);
  const TrainingSet set(configs, model);
  std::string draws;
  uint64_t index = 3 * 13;
  for (const BatchPlan& plan : set.epoch(42, 3))
    for (const Sample& s : plan.samples) {
      EXPECT_EQ(s.index, index++);
      draws += std::string(s.caption_dropped ? "c" : "-") + (s.flipped ? "f" : "-") + std::to_string(s.caption_variant) + " ";
    }
  EXPECT_EQ(draws, "-f0 -f2 -f1 --0 --0 -f0 -f1 --2 cf2 cf0 -f0 --2 --2 ");
}

TEST_F(TrainingData, BatchesHoldWhatTheFilesHold) {
  configs[0].loss_multiplier = 0.25;
  configs[0].is_reg = true;
  const TrainingSet set = made();
  const auto plans = set.epoch(42, 0);
  const LoadedBatch batch = set.load(plans[2]);  // "bd"
  EXPECT_EQ(batch.size(), 2);
  EXPECT_EQ(batch.plan.size, (LatentSize{3, 5}));
  ASSERT_EQ(batch.latents.size(), 2u * 128 * 15);
  const LatentCache b = read_latent_cache(folder / "cache0/b_0096x0048_f2xtiny.safetensors", model);
  const LatentCache d = read_latent_cache(folder / "cache0/d_0096x0048_f2xtiny.safetensors", model);
  EXPECT_TRUE(std::equal(b.target.values.begin(), b.target.values.end(), batch.latents.begin()));
  EXPECT_TRUE(std::equal(d.target.values.begin(), d.target.values.end(), batch.latents.begin() + 128 * 15));
  ASSERT_EQ(batch.text.size(), 2u * 24);
  EXPECT_EQ(batch.text[0], 3.0f);  // the length of "0/b"
  EXPECT_TRUE(batch.mask.empty());
  EXPECT_TRUE(batch.references.empty());
  EXPECT_THAT(batch.loss_multiplier, ElementsAre(0.25f, 0.25f));
  EXPECT_TRUE(batch.regularisation);
  EXPECT_FALSE(set.load(plans[0]).regularisation);
}

TEST_F(TrainingData, MirroredSamplesHaveMirroredMasks) {
  Image mask(64, 64, 1);
  for (int y = 0; y < 64; ++y)
    for (int x = 0; x < 16; ++x) *mask.at(x, y) = 255;
  for (const char* stem : {"x", "y", "z"}) folder.save(std::string("masks/") + stem + ".png", mask);
  configs = {configs[2]};
  configs[0].mask_directory = folder / "masks";
  configs[0].mask_min = 0.25;
  configs[0].flip_aug = true;
  configs[0].num_repeats = 4;
  const TrainingSet set = made();
  std::set<bool> seen;
  for (const BatchPlan& plan : set.epoch(1, 0)) {
    const LoadedBatch batch = set.load(plan);
    for (size_t i = 0; i < plan.samples.size(); ++i) {
      const bool flipped = plan.samples[i].flipped;
      seen.insert(flipped);
      EXPECT_EQ(batch.mask[16 * i], flipped ? 0.25f : 1.0f);
      EXPECT_EQ(batch.mask[16 * i + 3], flipped ? 1.0f : 0.25f);
      const CachedItem& item = set.items()[plan.samples[i].item];
      const LatentCache cache = read_latent_cache(item.latent_file, model, flipped);
      const auto& expected = flipped ? cache.flipped.values : cache.target.values;
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), batch.latents.begin() + static_cast<ptrdiff_t>(i * 128 * 16)));
    }
  }
  EXPECT_EQ(seen.size(), 2u);
}

TEST_F(TrainingData, DroppedCaptionsUseTheEmptyOne) {
  configs = {configs[2]};
  configs[0].caption_dropout_rate = 1;
  const TrainingSet set = made();
  const LoadedBatch batch = set.load(set.epoch(1, 0)[0]);
  EXPECT_TRUE(batch.plan.samples[0].caption_dropped);
  EXPECT_EQ(batch.text[0], 0.0f);
}

TEST_F(TrainingData, ReferencesGroupAndDrop) {
  configs = {configs[2]};
  configs[0].control_directory = folder / "control";
  configs[0].num_repeats = 8;
  configs[0].batch_size = 4;
  configs[0].reference_dropout_rate = 0.5;
  for (const char* name : {"x.png", "y.png", "z.png", "z_1.png"}) folder.image(std::string("control/") + name, 64, 64);
  const TrainingSet set = made();
  EXPECT_TRUE(set.has_references());
  EXPECT_EQ(set.largest_tokens(), 48);
  bool both = false;
  for (const BatchPlan& plan : set.epoch(5, 0)) {
    for (const Sample& sample : plan.samples) EXPECT_EQ(plan.references.size(), set.items()[sample.item].stem == "z" ? 2u : 1u);
    LoadedBatch batch = set.load(plan);
    for (const Sample& sample : plan.samples) batch.features.push_back(static_cast<float>(sample.item));
    const auto parts = split_by_references(batch);
    size_t samples = 0;
    for (const LoadedBatch& part : parts) {
      const bool dropped = part.plan.samples[0].references_dropped;
      EXPECT_EQ(part.references.size(), dropped ? 0u : plan.references.size());
      EXPECT_EQ(part.plan.references.size(), part.references.size());
      EXPECT_EQ(part.latents.size(), static_cast<size_t>(part.size()) * 128 * 16);
      EXPECT_EQ(part.text.size(), static_cast<size_t>(part.size()) * 24);
      for (const auto& reference : part.references) EXPECT_EQ(reference.values.size(), part.latents.size());
      for (const Sample& sample : part.plan.samples) EXPECT_EQ(sample.references_dropped, dropped);
      for (size_t i = 0; i < part.plan.samples.size(); ++i)
        EXPECT_EQ(part.features[i], static_cast<float>(part.plan.samples[i].item));
      samples += part.plan.samples.size();
    }
    EXPECT_EQ(samples, plan.samples.size());
    both = both || parts.size() == 2;
  }
  EXPECT_TRUE(both);
}

TEST_F(TrainingData, ImagePromptsAreDrawnForEachVisit) {
  configs = {configs[2], configs[1]};
  configs[0].num_repeats = 40;
  TrainingSet set = made();
  ASSERT_EQ(set.items().size(), 5u);  // x, y, z, v, w
  const std::vector<BatchPlan> before = set.epoch(5, 0);
  ItemFeatures features;
  for (int i = 0; i < 8; ++i) features.vectors.push_back({static_cast<float>(i)});
  // x and y are in one group with another image; z has two images of its own; v and w have one.
  features.choices = {{.first = 0, .count = 3, .own = 0},
                      {.first = 0, .count = 3, .own = 1},
                      {.first = 3, .count = 2},
                      {.first = 5},
                      {.first = 6, .count = 2, .own = 0}};
  set.set_features(features);
  std::map<size_t, std::map<float, int>> seen;
  const std::vector<BatchPlan> plans = set.epoch(5, 0);
  EXPECT_EQ(order_of(set, plans), order_of(set, before));
  for (const BatchPlan& plan : plans) {
    const LoadedBatch batch = set.load(plan);
    ASSERT_EQ(batch.features.size(), plan.samples.size());
    for (size_t i = 0; i < plan.samples.size(); ++i) ++seen[plan.samples[i].item][batch.features[i]];
  }
  const auto values_of = [&](size_t item) {
    std::vector<float> values;
    for (const auto& [value, times] : seen[item]) {
      values.push_back(value);
      EXPECT_GT(times, 8) << "item " << item << ", vector " << value;  // of 40
    }
    return values;
  };
  EXPECT_THAT(values_of(0), ElementsAre(1, 2));
  EXPECT_THAT(values_of(1), ElementsAre(0, 2));
  EXPECT_THAT(values_of(2), ElementsAre(3, 4));
  std::vector<float> validation;
  for (const BatchPlan& plan : set.validation())
    for (const float value : set.load(plan).features) validation.push_back(value);
  EXPECT_THAT(validation, ElementsAre(5, 7));  // the first, always
}

TEST_F(TrainingData, RanksGetEveryBatchOnceAndTheSameNumber) {
  const TrainingSet set = made();
  const auto plans = set.epoch(42, 0);  // 7 batches
  const auto first = deal(plans, 0, 3), second = deal(plans, 1, 3), third = deal(plans, 2, 3);
  EXPECT_EQ(order_of(set, first), "zy ec aa");
  EXPECT_EQ(order_of(set, second), "ce db zy");
  EXPECT_EQ(order_of(set, third), "bd x ce");
  EXPECT_FALSE(first[2].repeated);
  EXPECT_TRUE(second[2].repeated && third[2].repeated);
  EXPECT_EQ(order_of(set, deal(plans, 0, 1)), order_of(set, plans));
  EXPECT_EQ(deal({plans[0]}, 3, 4).size(), 1u);
  EXPECT_THROW(deal(plans, 3, 3), Error);
}

TEST_F(TrainingData, FaultsSayWhatToDo) {
  EXPECT_THAT(message_of([&] { TrainingSet(configs, model); }),
              AllOf(HasSubstr("datasets[0]: "), HasSubstr("contains no caches of flux_2_custom_tiny")));
  made();
  fs::remove(folder / "cache2/y_f2xtiny_te.safetensors");
  test::KeptLog kept;
  EXPECT_EQ(TrainingSet(configs, model, kept.log()).training_items(), 7);
  EXPECT_THAT(kept.warnings, ElementsAre(HasSubstr("no text states beside these latents in")));
  configs[0].resolution = {128, 64};
  try {
    const TrainingSet set(configs, model);
    ADD_FAILURE() << "stale latents were accepted";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("do not fit the configuration (5): "));
    EXPECT_THAT(e.what(), HasSubstr("was made at 64×64, but is 80×96 now"));
    EXPECT_THAT(e.hint().plain(), HasSubstr("dataset cache CONFIG"));
  }
  configs[0].resolution = {64, 64};
  configs[0].flip_aug = true;
  EXPECT_THAT(message_of([&] { TrainingSet(configs, model); }), HasSubstr("no mirrored latents"));
  configs[0].flip_aug = false;
  configs[2].caption_dropout_rate = 0.5;
  EXPECT_THAT(message_of([&] { TrainingSet(configs, model); }), HasSubstr("the states of the empty caption"));
  EXPECT_THAT(message_of([&] { TrainingSet({configs[1]}, model); }), HasSubstr("nothing to train on"));
}

TEST_F(TrainingData, HashChangesWithTheData) {
  const std::string before = made().dataset_hash();
  EXPECT_EQ(before.size(), 64u);
  EXPECT_EQ(made().dataset_hash(), before);
  folder.text("0/a.txt", "another caption");
  const std::string after = made().dataset_hash();
  EXPECT_NE(after, before);
  configs[2].resolution = {48, 48};
  EXPECT_NE(made().dataset_hash(), after);
}

}  // namespace
}  // namespace flux2
