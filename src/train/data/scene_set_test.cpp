#include "train/data/scene_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "base/error.h"
#include "tests/support/paths.h"

namespace flux2 {
namespace {

using testing::HasSubstr;

CacheModel small_model() {
  return cache_model({.hidden = 256, .double_blocks = 2, .single_blocks = 5, .text_width = 384, .text_length = 8});
}

std::vector<DatasetConfig> configs(const Json& scenes, const Json& more = Json::object()) {
  Json table = {{"resolution", 64}, {"batch_size", 4}, {"scenes", scenes}};
  table.update(more);
  return read_dataset_config(Json{{"datasets", Json::array({table})}}, test::source_folder() / "examples/pico/data.toml");
}

// "Latents" that hold the mean of each 16×16 square, so that they tell which picture they came from.
std::vector<float> means(const std::vector<Image>& images) {
  std::vector<float> latents;
  for (const Image& image : images)
    for (int c = 0; c < 128; ++c) {
      const int right = c % 16, down = c / 16;
      for (int y = 0; y < image.height; y += 16)
        for (int x = 0; x < image.width; x += 16) latents.push_back(static_cast<float>(image.at(x + right, y + down)[c % 3]));
    }
  return latents;
}

CaptionTokens letters(const std::string& text) {
  CaptionTokens tokens;
  for (size_t i = 0; i < 8; ++i) {
    tokens.ids.push_back(i < text.size() ? text[i] : 0);
    tokens.mask.push_back(i < text.size() ? 1 : 0);
  }
  return tokens;
}

SceneLatentOptions latent_options() {
  SceneLatentOptions options;
  options.encode = means;
  options.tokenise = letters;
  options.threads = 2;
  return options;
}

TEST(SceneSet, TheNumberOfImagesEncodedTogetherChangesNothing) {
  const auto datasets =
      configs({{"count", 23}, {"redraw", 0}, {"edit_share", 0.3}, {"two_reference_share", 0.1}, {"things", "things.png"}});
  std::vector<size_t> calls;
  std::vector<std::vector<float>> latents;
  for (const int64_t images : {1, 4, 100}) {
    SceneLatentOptions options = latent_options();
    options.pixels_together = images * 64 * 64;
    size_t most = 0;
    options.encode = [&](const std::vector<Image>& all) {
      most = std::max(most, all.size());
      return means(all);
    };
    const TrainingSet set = scene_latent_set(datasets, small_model(), std::move(options));
    latents.emplace_back();
    for (const BatchPlan& plan : set.epoch(1, 0)) {
      const LoadedBatch batch = set.load(plan);
      latents.back().insert(latents.back().end(), batch.latents.begin(), batch.latents.end());
      for (const auto& r : batch.references) latents.back().insert(latents.back().end(), r.values.begin(), r.values.end());
    }
    calls.push_back(most);
  }
  EXPECT_EQ(calls, (std::vector<size_t>{1, 4, 23}));
  EXPECT_EQ(latents[0], latents[1]);
  EXPECT_EQ(latents[0], latents[2]);
}

TEST(SceneSet, LoadsEqualBatchesEveryTime) {
  const auto datasets =
      configs({{"count", 40}, {"edit_share", 0.3}, {"two_reference_share", 0.1}, {"things", "things.png"}}, {{"num_repeats", 2}});
  const TrainingSet a = scene_latent_set(datasets, small_model(), latent_options());
  const TrainingSet b = scene_latent_set(datasets, small_model(), latent_options());
  EXPECT_EQ(a.training_items(), 40);
  EXPECT_EQ(a.samples_per_epoch(), 80);
  EXPECT_TRUE(a.has_references());
  EXPECT_EQ(a.dataset_hash(), b.dataset_hash());
  std::set<size_t> references;
  // The second set starts in the middle, as a resumed run does.
  for (const int64_t epoch : {0, 1, 2}) {
    const auto plans = a.epoch(5, epoch);
    for (const BatchPlan& plan : plans) {
      const LoadedBatch batch = a.load(plan);
      references.insert(batch.references.size());
      EXPECT_EQ(batch.latents.size(), plan.samples.size() * 128 * 16);
      EXPECT_EQ(batch.token_ids.size(), plan.samples.size() * 8);
      for (const auto& r : batch.references) EXPECT_EQ(r.values.size(), batch.latents.size());
      if (epoch == 0) continue;
      const LoadedBatch again = b.load(plan);
      EXPECT_EQ(batch.latents, again.latents);
      EXPECT_EQ(batch.token_ids, again.token_ids);
    }
  }
  EXPECT_EQ(references, (std::set<size_t>{0, 1, 2}));
}

TEST(SceneSet, TargetsHaveVectorsOfAnImageEncoder) {
  SceneLatentOptions options = latent_options();
  options.feature = [](const Image& image) { return std::vector<float>{means({image})[0], 2}; };
  const TrainingSet set = scene_latent_set(configs({{"count", 12}, {"edit_share", 0.5}}), small_model(), options);
  for (const BatchPlan& plan : set.epoch(3, 1)) {
    const LoadedBatch batch = set.load(plan);
    ASSERT_EQ(batch.features.size(), 2 * plan.samples.size());
    const size_t one = batch.latents.size() / plan.samples.size();
    for (size_t i = 0; i < plan.samples.size(); ++i) {
      EXPECT_EQ(batch.features[2 * i], batch.latents[i * one]);
      EXPECT_EQ(batch.features[2 * i + 1], 2);
    }
  }
}

TEST(SceneSet, DrawsOtherScenesInLaterEpochs) {
  const auto first_latents = [](const TrainingSet& set, int64_t epoch) {
    std::set<std::vector<float>> seen;
    for (const BatchPlan& plan : set.epoch(1, epoch))
      for (size_t i = 0; i < plan.samples.size(); ++i) {
        const LoadedBatch batch = set.load(plan);
        const size_t one = batch.latents.size() / plan.samples.size();
        seen.emplace(batch.latents.begin() + static_cast<ptrdiff_t>(i * one),
                     batch.latents.begin() + static_cast<ptrdiff_t>((i + 1) * one));
      }
    return seen;
  };
  const TrainingSet always = scene_latent_set(configs({{"count", 8}, {"redraw", 1}}), small_model(), latent_options());
  const TrainingSet rarely = scene_latent_set(configs({{"count", 8}, {"redraw", 2}}), small_model(), latent_options());
  const TrainingSet never = scene_latent_set(configs({{"count", 8}, {"redraw", 0}}), small_model(), latent_options());
  const auto start = first_latents(always, 0);
  EXPECT_EQ(start.size(), 8u);
  EXPECT_EQ(start, first_latents(rarely, 0));
  EXPECT_EQ(start, first_latents(rarely, 1));
  EXPECT_EQ(first_latents(always, 1), first_latents(rarely, 2));
  EXPECT_NE(start, first_latents(always, 1));
  EXPECT_EQ(start, first_latents(never, 5));
}

TEST(SceneSet, FaultsOfTheEncoderArriveWithTheBatch) {
  SceneLatentOptions options = latent_options();
  options.encode = [](const std::vector<Image>&) -> std::vector<float> { fail(ErrorCode::OutOfMemory, "no memory"); };
  const TrainingSet set = scene_latent_set(configs({{"count", 8}}), small_model(), options);
  EXPECT_THROW(set.load(set.epoch(1, 0).front()), Error);
}

TEST(SceneSet, DroppedCaptionsAreEmpty) {
  const TrainingSet set =
      scene_latent_set(configs({{"count", 8}}, {{"caption_dropout_rate", 1.0}}), small_model(), latent_options());
  const LoadedBatch batch = set.load(set.epoch(1, 0).front());
  EXPECT_THAT(batch.token_mask, testing::Each(0));
}

TEST(SceneImages, EveryVisitShowsAnotherImage) {
  const TrainingSet set = scene_image_set(configs({{"count", 8}, {"free_colours", 0.5}}, {{"num_repeats", 3}}), small_model(),
                                          {.crop = 32, .seed = 1, .threads = 2});
  std::set<std::vector<float>> seen;
  for (const int64_t epoch : {0, 1})
    for (const BatchPlan& plan : set.epoch(1, epoch)) {
      const LoadedBatch batch = set.load(plan);
      ASSERT_EQ(batch.pixels.size(), plan.samples.size() * 32 * 32 * 3);
      EXPECT_EQ(batch.pixels, set.load(plan).pixels);
      for (size_t i = 0; i < plan.samples.size(); ++i)
        seen.emplace(batch.pixels.begin() + static_cast<ptrdiff_t>(i * 3072),
                     batch.pixels.begin() + static_cast<ptrdiff_t>((i + 1) * 3072));
      EXPECT_THAT(batch.pixels, testing::Each(testing::AllOf(testing::Ge(-1.0f), testing::Le(1.0f))));
    }
  EXPECT_GT(seen.size(), 40u);  // of 48; a crop may show nothing but a plain background
}

TEST(SceneImages, RefusesSquaresLargerThanTheImage) {
  EXPECT_THROW(scene_image_set(configs({{"count", 8}}), small_model(), {.crop = 128}), Error);
}

TEST(SceneCaptions, HaveEveryKind) {
  const auto captions = scene_captions(configs({{"count", 1000}, {"things", "things.png"}}), 300);
  ASSERT_EQ(captions.size(), 300u);
  int edits = 0;
  for (const std::string& c : captions) edits += c.starts_with("make") || c.starts_with("remove") || c.starts_with("add");
  EXPECT_GT(edits, 10);
  EXPECT_LT(edits, 150);
}

TEST(SceneConfig, MistakesAreNamed) {
  const auto error = [](const Json& scenes, const Json& more = Json::object()) -> std::string {
    try {
      configs(scenes, more);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(error({{"cout", 8}}), HasSubstr("did you mean \"count\"?"));
  EXPECT_THAT(error({{"edit_share", 2}}), HasSubstr("edit_share: must be between 0 and 1"));
  EXPECT_THAT(error({{"edit_share", 0.8}, {"two_reference_share", 0.3}}), HasSubstr("more than 1 together"));
  EXPECT_THAT(error({{"count", 0}}), HasSubstr("count: must be between 1"));
  EXPECT_THAT(error(3), HasSubstr("must be a table"));
  EXPECT_THAT(error({{"count", 8}}, {{"resolution", 100}}), HasSubstr("multiples of 16"));
  EXPECT_THAT(error({{"count", 8}}, {{"image_directory", "images"}}), HasSubstr("image_directory cannot be used"));
  EXPECT_THAT(error({{"count", 8}}, {{"flip_aug", true}}), HasSubstr("flip_aug cannot be used"));
  EXPECT_EQ(error({{"count", 8}}), "");
  EXPECT_TRUE(are_scenes(configs({{"count", 8}})));
}

}  // namespace
}  // namespace flux2
