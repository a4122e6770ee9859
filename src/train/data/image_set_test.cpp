#include "train/data/image_set.h"

#include <gmock/gmock.h>

#include <set>

#include "train/data/source_images.h"
#include "train/data/test_data.h"

namespace flux2 {
namespace {

using test::DataFolder;
using test::message_of;
using testing::HasSubstr;

class ImageSet : public testing::Test {
 protected:
  ImageSet() {
    for (int d = 0; d < 2; ++d) {
      DatasetConfig config;
      config.image_directory = folder / std::to_string(d);
      config.cache_directory = folder / "cache";
      config.resolution = {64, 64};
      config.enable_bucket = true;
      config.batch_size = 2;
      config.validation = d == 1;
      configs.push_back(config);
    }
    for (const char* name : {"0/a.png", "0/b.png", "1/v.png"}) images.push_back(folder.image(name, 64, 64));
    wide = folder.image("0/c.png", 96, 48);
  }

  TrainingSet made(const ImageSetOptions& options = {}) const { return image_training_set(configs, model, options); }

  static std::vector<float> samples_of(const Image& image) {
    std::vector<float> values;
    for (const uint8_t p : image.pixels) values.push_back(static_cast<float>(p) / 127.5f - 1.0f);
    return values;
  }

  DataFolder folder;
  std::vector<DatasetConfig> configs;
  CacheModel model = test::tiny_cache_model();
  std::vector<Image> images;
  Image wide;
};

TEST_F(ImageSet, GivesWholeImagesWithoutCaptions) {
  const TrainingSet set = made();
  EXPECT_EQ(set.training_items(), 3);
  EXPECT_EQ(set.batches_per_epoch(), 2);  // two shapes
  EXPECT_TRUE(set.has_validation());
  int seen = 0;
  for (const BatchPlan& plan : set.epoch(1, 0)) {
    const LoadedBatch batch = set.load(plan);
    const auto one = static_cast<size_t>(plan.size.tokens()) * 16 * 16 * 3;
    ASSERT_EQ(batch.pixels.size(), one * plan.samples.size());
    for (size_t i = 0; i < plan.samples.size(); ++i) {
      const std::string stem = set.items()[plan.samples[i].item].stem;
      const std::vector<float> pixels(batch.pixels.begin() + static_cast<ptrdiff_t>(i * one),
                                      batch.pixels.begin() + static_cast<ptrdiff_t>((i + 1) * one));
      if (stem == "a") {
        EXPECT_EQ(pixels, samples_of(images[0]));
      }
      if (stem == "c") {
        EXPECT_GT(plan.size.columns, plan.size.rows);
      }
      ++seen;
    }
  }
  EXPECT_EQ(seen, 3);
  EXPECT_EQ(set.load(set.validation()[0]).pixels, samples_of(images[2]));
}

TEST_F(ImageSet, SquaresComeFromTheImageAndDependOnTheSample) {
  const TrainingSet set = made({.crop = 32, .seed = 5}), again = made({.crop = 32, .seed = 5, .kept_bytes = 0});
  EXPECT_EQ(set.batches_per_epoch(), 2);  // three images of one shape
  std::set<std::vector<float>> different;
  for (int64_t epoch = 0; epoch < 4; ++epoch)
    for (const BatchPlan& plan : set.epoch(1, epoch)) {
      EXPECT_EQ(plan.size, (LatentSize{2, 2}));
      const LoadedBatch batch = set.load(plan);
      EXPECT_EQ(batch.pixels, again.load(plan).pixels);  // decoded a second time
      different.insert(batch.pixels);
    }
  EXPECT_EQ(different.size(), 8u);
  EXPECT_EQ(set.load(set.validation()[0]).pixels, samples_of(centre_crop(images[2], 32, 32)));
}

TEST_F(ImageSet, FlipsWhatTheSampleSays) {
  for (DatasetConfig& config : configs) config.flip_aug = true;
  const TrainingSet set = made();
  BatchPlan plan = set.validation()[0];
  plan.samples[0].flipped = true;
  EXPECT_EQ(set.load(plan).pixels, samples_of(mirrored(images[2])));
}

TEST_F(ImageSet, NamesTheImageThatIsTooSmallOrDamaged) {
  EXPECT_THAT(message_of([&] { made({.crop = 128}); }), testing::AllOf(HasSubstr(".png"), HasSubstr("the square of 128")));
  folder.text("0/d.png", "no image");
  EXPECT_THAT(message_of([&] { made(); }), HasSubstr("d.png"));
}

}  // namespace
}  // namespace flux2
