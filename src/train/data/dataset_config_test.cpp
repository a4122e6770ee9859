#include "train/data/dataset_config.h"

#include <gmock/gmock.h>

#include "train/data/test_data.h"

namespace flux2 {
namespace {

using test::message_of;
using testing::HasSubstr;

std::vector<DatasetConfig> configs(const std::string& json, const std::filesystem::path& file = "datasets.json",
                                   const Log& log = {}) {
  return read_dataset_config(parse_json(json), file, log);
}

TEST(DatasetConfig, DefaultsAreThoseOfMusubiTuner) {
  const auto list = configs(R"({"datasets": [{"image_directory": "a", "caption_extension": ".txt"}]})");
  ASSERT_EQ(list.size(), 1u);
  const DatasetConfig& c = list[0];
  EXPECT_EQ(c.resolution, (PixelSize{960, 544}));
  EXPECT_EQ(c.batch_size, 1);
  EXPECT_EQ(c.num_repeats, 1);
  EXPECT_FALSE(c.enable_bucket || c.bucket_no_upscale || c.no_resize_control || c.flip_aug || c.validation);
  EXPECT_TRUE(c.exif);
  EXPECT_EQ(c.cache_directory, "a");
  EXPECT_FALSE(c.control_resolution);
  EXPECT_EQ(c.loss_multiplier, 1);
}

TEST(DatasetConfig, DatasetThenGeneralThenDefault) {
  const auto list = configs(R"({
    "general": {"resolution": [768, 512], "batch_size": 4, "caption_extension": ".txt", "enable_bucket": true,
                "caption_dropout_rate": 0.1},
    "datasets": [{"image_directory": "a", "batch_size": 2, "caption_dropout_rate": 0},
                 {"image_directory": "b", "resolution": 512, "bucket_no_upscale": true}]})");
  EXPECT_EQ(list[0].resolution, (PixelSize{768, 512}));
  EXPECT_EQ(list[0].batch_size, 2);
  EXPECT_EQ(list[0].caption_dropout_rate, 0);
  EXPECT_EQ(list[1].resolution, (PixelSize{512, 512}));
  EXPECT_EQ(list[1].batch_size, 4);
  EXPECT_EQ(list[1].caption_dropout_rate, 0.1);
  EXPECT_TRUE(list[1].enable_bucket && list[1].bucket_no_upscale);
}

TEST(DatasetConfig, NoUpscaleNeedsBuckets) {
  EXPECT_FALSE(configs(R"({"datasets": [{"image_directory": "a", "caption_extension": ".txt", "bucket_no_upscale": true}]})")[0]
                   .bucket_no_upscale);
}

TEST(DatasetConfig, EveryKeyOfOursIsRead) {
  const auto c = configs(R"({"datasets": [{"image_directory": "a", "caption_extension": ".txt", "caption_dropout_rate": 0.05,
    "caption_prefix": "p", "caption_suffix": "s", "trigger_word": "t", "shuffle_tags": true, "keep_tags": 2, "caption_default": "",
    "recursive": true, "flip_aug": true, "mask_directory": "m", "mask_min": 0.25, "loss_multiplier": 0.5, "is_reg": true,
    "reference_dropout_rate": 0.2, "validation": true, "exif": false, "image_prompt_directory": "ip"}]})")[0];
  EXPECT_EQ(c.caption_dropout_rate, 0.05);
  EXPECT_EQ(c.caption_prefix + c.caption_suffix + c.trigger_word, "pst");
  EXPECT_TRUE(c.shuffle_tags && c.recursive && c.flip_aug && c.is_reg && c.validation && !c.exif);
  EXPECT_EQ(c.keep_tags, 2);
  EXPECT_EQ(c.caption_default, "");
  EXPECT_EQ(c.mask_directory, "m");
  EXPECT_EQ(c.image_prompt_directory, "ip");
  EXPECT_EQ(c.mask_min, 0.25);
  EXPECT_EQ(c.loss_multiplier, 0.5);
  EXPECT_EQ(c.reference_dropout_rate, 0.2);
}

TEST(DatasetConfig, OldNamesWarnAndLoseAgainstNewOnes) {
  test::KeptLog kept;
  const auto list = configs(R"({"datasets": [
      {"image_directory": "a", "caption_extension": ".txt", "flux_kontext_no_resize_control": true},
      {"image_directory": "b", "caption_extension": ".txt", "qwen_image_edit_control_resolution": 512, "control_resolution": 1024}]})",
                            "x.json", kept.log());
  EXPECT_TRUE(list[0].no_resize_control);
  EXPECT_EQ(list[1].control_resolution, (PixelSize{1024, 1024}));
  ASSERT_EQ(kept.warnings.size(), 2u);
  EXPECT_EQ(kept.warnings[0], "datasets[0]: the key \"flux_kontext_no_resize_control\" is now called \"no_resize_control\"");
}

TEST(DatasetConfig, KeysOfOtherModelsHaveNoEffect) {
  EXPECT_EQ(configs(R"({"datasets": [{"image_directory": "a", "caption_extension": ".txt", "fp_latent_window_size": 9,
                        "fp_1f_clean_indices": [0], "fp_1f_target_index": 1, "fp_1f_no_post": true}]})")
                .size(),
            1u);
}

TEST(DatasetConfig, ErrorsNameTheTableTheKeyAndTheRemedy) {
  const auto error = [](const std::string& json) { return message_of([&] { configs(json); }); };
  const auto dataset = [&](const std::string& rest) {
    return error(R"({"datasets": [{"image_directory": "a", "caption_extension": ".txt", )" + rest + "}]}");
  };
  EXPECT_EQ(dataset(R"("reslution": 512)"), "datasets[0]: unknown key \"reslution\"; did you mean \"resolution\"?");
  EXPECT_EQ(dataset(R"("quux_frobnicate": 1)"), "datasets[0]: unknown key \"quux_frobnicate\"");
  EXPECT_EQ(dataset(R"("batch_size": 0)"), "datasets[0]: batch_size: must be between 1 and 1024");
  EXPECT_EQ(dataset(R"("batch_size": 18446744073709551615)"), "datasets[0]: batch_size: must be between 1 and 1024");
  EXPECT_EQ(dataset(R"("batch_size": "4")"), "datasets[0]: batch_size: must be a whole number");
  EXPECT_EQ(dataset(R"("flip_aug": 1)"), "datasets[0]: flip_aug: must be true or false");
  EXPECT_EQ(dataset(R"("resolution": [1, 2, 3])"), "datasets[0]: resolution: must be a whole number or [width, height]");
  EXPECT_EQ(dataset(R"("caption_dropout_rate": 1.5)"), "datasets[0]: caption_dropout_rate: must be between 0 and 1");
  EXPECT_THAT(dataset(R"("resolution": 500)"),
              HasSubstr("datasets[0]: the resolution 500×500 must have sides that are multiples"));
  EXPECT_THAT(dataset(R"("enable_bucket": true, "resolution": 20000)"), HasSubstr("too large"));
  EXPECT_THAT(dataset(R"("video_directory": "v")"), HasSubstr("is a video dataset"));
  EXPECT_THAT(dataset(R"("image_jsonl_file": "x.jsonl")"), HasSubstr("has both image_directory and image_jsonl_file"));
  EXPECT_THAT(dataset(R"("alpha_mask": true, "mask_directory": "m")"), HasSubstr("both mask_directory and alpha_mask"));
  EXPECT_EQ(dataset(R"("image_prompt_group": "colour")"), "datasets[0]: image_prompt_group: must be \"folder\" or \"caption\"");
  EXPECT_THAT(dataset(R"("image_prompt_group": "folder", "image_prompt_directory": "p")"),
              HasSubstr("both image_prompt_directory and image_prompt_group"));
  EXPECT_THAT(error(R"({"datasets": [{"image_jsonl_file": "a", "cache_directory": "c", "image_prompt_directory": "p"}]})"),
              HasSubstr("name the image in each line with image_prompt_path"));
  EXPECT_EQ(error(R"({"general": {"image_directory": "a"}, "datasets": []})"),
            "general: \"image_directory\" belongs into a table of datasets");
  EXPECT_THAT(error(R"({"datasets": []})"), HasSubstr("lists no datasets"));
  EXPECT_THAT(error(R"({"dataset": []})"), HasSubstr("did you mean \"datasets\"?"));
  EXPECT_THAT(error(R"([1])"), HasSubstr("a dataset file is a table"));
  EXPECT_THAT(error(R"({"datasets": [{"caption_extension": ".txt"}]})"),
              HasSubstr("needs image_directory, image_jsonl_file or scenes"));
  EXPECT_THAT(error(R"({"datasets": [{"image_directory": "a"}]})"), HasSubstr("needs caption_extension"));
  EXPECT_THAT(error(R"({"datasets": [{"image_directory": "a", "caption_extension": "txt"}]})"), HasSubstr("like \".txt\""));
  EXPECT_THAT(error(R"({"datasets": [{"image_jsonl_file": "a.jsonl"}]})"), HasSubstr("needs cache_directory"));
  EXPECT_THAT(error(R"({"datasets": [{"image_directory": "a", "caption_extension": ".txt"},
                                     {"image_directory": "b", "caption_extension": ".txt", "cache_directory": "./a"}]})"),
              HasSubstr("datasets[0] and datasets[1] have the same cache folder"));
}

TEST(DatasetConfig, PathsAreFoundBesideTheFile) {
  const test::DataFolder folder;
  folder.item("images/a", 64, 64, "x");
  const auto list =
      configs(R"({"datasets": [{"image_directory": "images", "caption_extension": ".txt", "cache_directory": "cache"}]})",
              folder / "datasets.json");
  EXPECT_EQ(list[0].image_directory, folder / "images");
  EXPECT_EQ(list[0].cache_directory, folder / "cache");  // does not exist yet, but the images are there
  // What is nowhere stays as it was written.
  EXPECT_EQ(configs(R"({"datasets": [{"image_directory": "nowhere", "caption_extension": ".txt"}]})", folder / "x.json")[0]
                .image_directory,
            "nowhere");
}

TEST(DatasetConfig, KnowsWhatMusubiTunerRefuses) {
  EXPECT_EQ(keys_musubi_refuses(parse_json(R"({"general": {"flip_aug": true, "batch_size": 2},
              "datasets": [{"image_directory": "a"}, {"image_directory": "b", "exif": false, "trigger_word": "x"}]})")),
            (std::vector<std::string>{"general.flip_aug", "datasets[1].exif", "datasets[1].trigger_word"}));
}

TEST(DatasetConfig, DescriptionHasTheCacheFolder) {
  const auto rows =
      described(configs(R"({"datasets": [{"image_directory": "a", "caption_extension": ".txt", "flip_aug": true}]})")[0]);
  EXPECT_THAT(rows, testing::Contains(std::pair<std::string, std::string>("cache_directory", "a")));
  EXPECT_THAT(rows, testing::Contains(std::pair<std::string, std::string>("flip_aug", "true")));
}

}  // namespace
}  // namespace flux2
