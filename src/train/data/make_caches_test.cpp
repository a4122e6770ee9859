#include "train/data/make_caches.h"

#include <gmock/gmock.h>

#include <thread>

#include "train/data/source_images.h"
#include "train/data/test_data.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using test::DataFolder;
using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class MakeCaches : public testing::Test {
 protected:
  MakeCaches() {
    config.image_directory = folder / "images";
    config.cache_directory = folder / "cache";
    config.caption_extension = ".txt";
    config.resolution = {64, 64};
    options.encoder = "vae 1";
    options.workers = 2;
    folder.item("images/a", 100, 90, "one");
    folder.item("images/b", 64, 64, "three");
    folder.item("images/c", 20, 30, "seventeen");
  }

  std::vector<Dataset> listed() const { return list_datasets({config}); }

  // The stems that are made, and makes them.
  std::vector<std::string> make_latents() {
    const auto datasets = listed();
    const auto tasks = latent_tasks(datasets, model, options);
    make_latent_caches(datasets, tasks, model, test::mean_latents, options);
    return stems_of(datasets, tasks);
  }
  std::vector<std::string> make_texts() {
    const auto datasets = listed();
    const auto tasks = text_tasks(datasets, model, options);
    make_text_caches(
        datasets, tasks, model,
        [&](const std::vector<std::string>& texts) {
          batches.push_back(texts.size());
          return test::length_states(texts);
        },
        options);
    return stems_of(datasets, tasks);
  }
  static std::vector<std::string> stems_of(const std::vector<Dataset>& datasets, const std::vector<CacheTask>& tasks) {
    std::vector<std::string> stems;
    for (const CacheTask& task : tasks)
      stems.push_back(task.empty_caption ? "(empty)" : datasets[task.dataset].items[task.item].stem);
    return stems;
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder / "cache")) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  LatentCache cache(const std::string& name, bool flipped = false) const {
    return read_latent_cache(folder / ("cache/" + name), model, flipped);
  }

  DataFolder folder;
  DatasetConfig config;
  CacheModel model = test::tiny_cache_model();
  CacheOptions options;
  std::vector<size_t> batches;
};

TEST_F(MakeCaches, FilesHoldTheEncodedImages) {
  EXPECT_THAT(make_latents(), ElementsAre("a", "b", "c"));
  EXPECT_THAT(files(), ElementsAre("a_0100x0090_f2xtiny.safetensors", "b_0064x0064_f2xtiny.safetensors",
                                   "c_0020x0030_f2xtiny.safetensors"));
  const Image image = folder.image("again.png", 64, 64);
  folder.save("images/b.png", image);
  EXPECT_THAT(make_latents(), ElementsAre("b"));
  const LatentCache b = cache("b_0064x0064_f2xtiny.safetensors");
  EXPECT_EQ(b.target.values, test::mean_latents(64, 64, training_planes(image)));
  EXPECT_TRUE(b.mask.empty());
}

TEST_F(MakeCaches, OnlyWhatChangedIsMadeAgain) {
  make_latents();
  EXPECT_THAT(make_latents(), IsEmpty());
  // A new time alone changes nothing.
  fs::last_write_time(folder / "images/a.png", fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_THAT(make_latents(), IsEmpty());
  folder.image("images/a.png", 100, 91);
  EXPECT_THAT(make_latents(), ElementsAre("a"));
  EXPECT_THAT(files(), testing::Not(testing::Contains("a_0100x0090_f2xtiny.safetensors")));  // the file of the old size
  options.encoder = "vae 2";
  EXPECT_THAT(make_latents(), ElementsAre("a", "b", "c"));
  options.latent_dtype = DType::BF16;
  EXPECT_THAT(make_latents(), ElementsAre("a", "b", "c"));
  EXPECT_THAT(make_latents(), IsEmpty());
  config.resolution = {64, 48};
  EXPECT_THAT(make_latents(), ElementsAre("a", "b", "c"));
  config.exif = false;
  EXPECT_THAT(make_latents(), ElementsAre("a", "b", "c"));
  options.everything = true;
  EXPECT_THAT(make_latents(), ElementsAre("a", "b", "c"));
}

TEST_F(MakeCaches, SkipExistingKeepsWhatFits) {
  make_latents();
  folder.image("images/b.png", 64, 64, 1);
  options.skip_existing = true;
  EXPECT_THAT(make_latents(), IsEmpty());
  config.resolution = {48, 64};  // the files do not fit any more
  EXPECT_THAT(make_latents(), ElementsAre("a", "b", "c"));
}

TEST_F(MakeCaches, FilesOfMusubiTunerAreAcceptedUntilTheImageIsNewer) {
  make_latents();
  const auto path = folder / "cache/b_0064x0064_f2xtiny.safetensors";
  LatentCache b = cache("b_0064x0064_f2xtiny.safetensors");
  b.notes.clear();
  write_latent_cache(path, b, model);
  EXPECT_THAT(make_latents(), IsEmpty());
  fs::last_write_time(folder / "images/b.png", fs::last_write_time(path) + std::chrono::seconds(2));
  EXPECT_THAT(make_latents(), ElementsAre("b"));
}

TEST_F(MakeCaches, DamagedFilesAreMadeAgain) {
  make_latents();
  fs::resize_file(folder / "cache/a_0100x0090_f2xtiny.safetensors", 100);
  EXPECT_THAT(make_latents(), ElementsAre("a"));
}

TEST_F(MakeCaches, ReferencesAndMirrorsAndMasks) {
  for (const char* stem : {"a", "b", "c"}) folder.image(std::string("control/") + stem + ".png", 80, 50);
  const Image second = folder.image("control/b_1.png", 64, 64);
  Image mask(64, 64, 1);
  for (int y = 0; y < 64; ++y)
    for (int x = 0; x < 16; ++x) *mask.at(x, y) = 255;
  folder.save("masks/b.png", mask);
  config.control_directory = folder / "control";
  config.mask_directory = folder / "masks";
  config.flip_aug = true;
  EXPECT_THAT(make_latents(), ElementsAre("a", "b", "c"));
  const LatentCache b = cache("b_0064x0064_f2xtiny.safetensors"), flipped = cache("b_0064x0064_f2xtiny.safetensors", true);
  ASSERT_EQ(b.references.size(), 2u);
  EXPECT_EQ(b.references[1].values, test::mean_latents(64, 64, training_planes(second)));
  ASSERT_EQ(flipped.flipped_references.size(), 2u);
  EXPECT_EQ(flipped.flipped_references[1].values, test::mean_latents(64, 64, training_planes(mirrored(second))));
  EXPECT_EQ(flipped.flipped.size, b.target.size);
  EXPECT_NE(flipped.flipped.values, b.target.values);
  std::vector<float> expected;
  for (int row = 0; row < 4; ++row) expected.insert(expected.end(), {1, 0, 0, 0});
  EXPECT_EQ(b.mask, expected);
  EXPECT_EQ(cache("a_0100x0090_f2xtiny.safetensors").mask, std::vector<float>(16, 1.0f));  // no mask: all of it counts
  EXPECT_THAT(make_latents(), IsEmpty());
  fs::remove(folder / "control/b_1.png");
  EXPECT_THAT(make_latents(), ElementsAre("b"));
}

TEST_F(MakeCaches, AlphaIsAMask) {
  Image image(64, 64, 4);
  for (int y = 0; y < 64; ++y)
    for (int x = 0; x < 64; ++x) image.at(x, y)[3] = y < 8 ? 255 : 0;
  folder.save("images/b.png", image);
  config.alpha_mask = true;
  make_latents();
  const std::vector<float> mask = cache("b_0064x0064_f2xtiny.safetensors").mask;
  EXPECT_EQ(mask[0], 0.5f);
  EXPECT_EQ(mask[4], 0.0f);
}

TEST_F(MakeCaches, AFaultyImageStopsWithItsName) {
  folder.text("images/b.png", "no image");
  EXPECT_THAT(message_of([&] { make_latents(); }), HasSubstr("b.png"));
  EXPECT_THAT(files(), ElementsAre("a_0100x0090_f2xtiny.safetensors"));  // what was finished before
}

TEST_F(MakeCaches, ProgressMayStopTheWork) {
  const auto datasets = listed();
  const auto tasks = latent_tasks(datasets, model, options);
  EXPECT_THROW(make_latent_caches(datasets, tasks, model, test::mean_latents, options,
                                  [](int64_t done, int64_t) {
                                    if (done == 2) fail(ErrorCode::Cancelled, "stopped");
                                  }),
               Error);
  EXPECT_THAT(make_latents(), ElementsAre("c"));
}

TEST_F(MakeCaches, TextStates) {
  EXPECT_THAT(make_texts(), ElementsAre("a", "b", "c"));
  EXPECT_THAT(files(), ElementsAre("a_f2xtiny_te.safetensors", "b_f2xtiny_te.safetensors", "c_f2xtiny_te.safetensors"));
  std::vector<float> states(24);
  read_caption_states(folder / "cache/c_f2xtiny_te.safetensors", model, 0, states.data());
  EXPECT_EQ(states, test::length_states({"seventeen"})[0]);
  EXPECT_THAT(make_texts(), IsEmpty());
  folder.text("images/b.txt", "four");
  EXPECT_THAT(make_texts(), ElementsAre("b"));
  options.skip_existing = true;
  folder.text("images/b.txt", "eleven");
  EXPECT_THAT(make_texts(), IsEmpty());
}

TEST_F(MakeCaches, TextsAreEncodedInBatchesOfTheOption) {
  config.batch_size = 1;
  options.text_batch = 2;
  make_texts();
  EXPECT_THAT(batches, ElementsAre(2, 1));
}

TEST_F(MakeCaches, VariantsAndTheEmptyCaption) {
  folder.text("images/b.txt", "x, y, z");
  config.shuffle_tags = true;
  config.caption_dropout_rate = 0.1;
  options.text_batch = 4;
  EXPECT_THAT(make_texts(), ElementsAre("a", "b", "c", "(empty)"));
  EXPECT_EQ(read_caption_summary(folder / "cache/b_f2xtiny_te.safetensors", model).variants, 6);
  EXPECT_EQ(read_caption_summary(folder / "cache/a_f2xtiny_te.safetensors", model).variants, 0);
  EXPECT_EQ(read_caption_summary(folder / "cache/.empty_f2xtiny_te.safetensors", model).caption, "");
  EXPECT_THAT(make_texts(), IsEmpty());
  config.keep_tags = 1;
  EXPECT_THAT(make_texts(), ElementsAre("b"));
}

TEST_F(MakeCaches, AnyFormIsKeptWhereTheContentIsTheSame) {
  for (const char* stem : {"a", "b", "c"}) folder.text(std::string("images/") + stem + ".txt", std::string(stem) + ", x, y, z");
  config.shuffle_tags = true;
  options.latent_dtype = DType::BF16;
  make_latents();
  const auto with_variants = [&](int64_t variants) {
    const auto datasets = list_datasets({config}, {.caption_variants = variants});
    make_text_caches(datasets, text_tasks(datasets, model, options), model, test::length_states, options);
  };
  options.any_form = true;
  options.latent_dtype = DType::F32;
  EXPECT_THAT(make_latents(), IsEmpty());
  for (const int64_t variants : {3, 12}) {
    options.any_form = false;
    with_variants(variants);
    EXPECT_EQ(read_caption_summary(folder / "cache/b_f2xtiny_te.safetensors", model).variants, variants);
    options.any_form = true;
    EXPECT_THAT(make_texts(), IsEmpty()) << variants;
  }
  // Another content is not kept.
  folder.image("images/a.png", 100, 91);
  EXPECT_THAT(make_latents(), ElementsAre("a"));
  folder.text("images/b.txt", "b, x, y, w");
  EXPECT_THAT(make_texts(), ElementsAre("b"));
  options.encoder = "vae 2";
  EXPECT_THAT(make_latents(), ElementsAre("a", "b", "c"));
  config.keep_tags = 1;
  EXPECT_THAT(make_texts(), ElementsAre("a", "b", "c"));
  config.shuffle_tags = false;
  EXPECT_THAT(make_texts(), ElementsAre("a", "b", "c"));
}

TEST_F(MakeCaches, FilesOfImagesThatAreGoneAreRemoved) {
  make_latents();
  make_texts();
  fs::remove(folder / "images/a.png");
  folder.text("cache/lora_f2xtiny.safetensors", "a file with a name like a cache's");
  folder.text("cache/a_0100x0090_f2d.safetensors", "of another model");
  EXPECT_EQ(remove_foreign_caches(listed(), model), 2);
  EXPECT_THAT(files(), ElementsAre("a_0100x0090_f2d.safetensors", "b_0064x0064_f2xtiny.safetensors", "b_f2xtiny_te.safetensors",
                                   "c_0020x0030_f2xtiny.safetensors", "c_f2xtiny_te.safetensors", "lora_f2xtiny.safetensors"));
}

}  // namespace
}  // namespace flux2
