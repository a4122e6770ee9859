// flux2 dataset check, buckets and cache, with the bundled model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "app/config_file.h"
#include "image/read_image.h"
#include "image/write_image.h"
#include "tests/support/program.h"
#include "weights/safetensors_file.h"
#include "weights/weight_source.h"

namespace flux2::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class DatasetCli : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    item("images/a", 160, 96, "a red circle");
    item("images/b", 160, 96, "a blue square");
    item("images/c", 96, 160, "a green star");
    config(R"("image_directory": "images", "cache_directory": "cache", "caption_extension": ".txt", "resolution": 64,
              "enable_bucket": true, "batch_size": 2)");
  }

  void image(const std::string& name, int width, int height) const {
    Image made(width, height, 3);
    for (size_t i = 0; i < made.pixels.size(); ++i) made.pixels[i] = static_cast<uint8_t>((i * 31 + name.size() * 7) % 253);
    fs::create_directories((folder_ / name).parent_path());
    save_image(folder_ / name, encode_png(made));
  }
  void item(const std::string& stem, int width, int height, const std::string& caption) const {
    image(stem + ".png", width, height);
    write(stem + ".txt", caption);
  }
  void config(const std::string& dataset) const { write("data.json", "{\"datasets\": [{" + dataset + "}]}"); }

  Json json(std::vector<std::string> words, int status = 0) const {
    words.push_back("--json");
    const Finished finished = flux2(std::move(words));
    EXPECT_EQ(finished.status, status) << finished.err;
    return parse_json(finished.out);
  }
  std::vector<std::string> cache_files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_ / "cache")) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
};

TEST_F(DatasetCli, CheckOfAGoodDataset) {
  const Finished finished = flux2({"dataset", "check", "data.json"});
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("datasets[0]: 3 images in 2 buckets, 2 batches"));
  EXPECT_THAT(finished.out, HasSubstr("2 batches per epoch"));
  const Json result = json({"dataset", "check", "--dataset_config", "data.json", "--musubi"});
  EXPECT_EQ(result["ok"], true);
  EXPECT_EQ(result["batches_per_epoch"], 2);
  EXPECT_EQ(result["musubi_refuses"], Json::array());
}

TEST_F(DatasetCli, CheckFindsEverythingThatIsWrong) {
  write("images/b.png", "not an image");
  image("images/d.png", 160, 96);
  item("images/e", 20, 20, "");
  image("images/a.jpg", 64, 64);
  const Finished finished = flux2({"dataset", "check", "data.json"});
  EXPECT_EQ(finished.status, 2);
  EXPECT_THAT(finished.out, HasSubstr("error: reading images/b.png"));
  EXPECT_THAT(finished.out, HasSubstr("error: images/a.jpg and images/a.png have the same name"));
  EXPECT_THAT(finished.out, HasSubstr("warning: no caption file (.txt) for 1 of 6 images in images; left out: d.png"));
  EXPECT_THAT(finished.out, HasSubstr("e.txt is empty"));
  EXPECT_THAT(finished.out, HasSubstr("because they are enlarged by more than 1.5×: e.png (20×20)"));
  EXPECT_THAT(finished.out, HasSubstr("training would stop: correct the errors"));
  EXPECT_EQ(json({"dataset", "check", "data.json"}, 2)["ok"], false);
}

TEST_F(DatasetCli, CheckListsKeysThatMusubiTunerRefuses) {
  config(R"("image_directory": "images", "caption_extension": ".txt", "flip_aug": true)");
  const Finished finished = flux2({"dataset", "check", "data.json", "--musubi"});
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("musubi-tuner does not know datasets[0].flip_aug"));
}

TEST_F(DatasetCli, BadInputGetsOneSentence) {
  const auto message = [&](const std::vector<std::string>& words, int status) {
    const Finished finished = flux2(words);
    EXPECT_EQ(finished.status, status) << finished.err;
    EXPECT_EQ(finished.out, "");
    return finished.err;
  };
  EXPECT_THAT(message({"dataset"}, 2), HasSubstr("missing action. Use one of: check, buckets, cache"));
  EXPECT_THAT(message({"dataset", "chekc", "x"}, 2), HasSubstr("unknown action \"chekc\". Use one of: check, buckets, cache"));
  EXPECT_THAT(message({"dataset", "check"}, 2), HasSubstr("name the dataset file"));
  EXPECT_THAT(message({"dataset", "check", "data.json", "--dataset_config", "data.json"}, 2),
              HasSubstr("give one dataset file, not 2"));
  EXPECT_THAT(message({"dataset", "check", "nothing.json"}, 3), HasSubstr("nothing.json"));
  EXPECT_THAT(message({"dataset", "check", "images/a.txt"}, 2), HasSubstr("the file must end in .json or .toml"));
  write("data.json", "{\"datasets\": [{\"image_directory\": \"images\", \"caption_extention\": \".txt\"}]}");
  EXPECT_THAT(message({"dataset", "buckets", "data.json"}, 2),
              HasSubstr("data.json: datasets[0]: unknown key \"caption_extention\"; did you mean \"caption_extension\"?"));
  write("data.json", "{\"datasets\": [{\"video_directory\": \"images\"}]}");
  EXPECT_THAT(message({"dataset", "cache", "data.json"}, 2), HasSubstr("is a video dataset"));
  config(R"("image_directory": "images", "caption_extension": ".txt", "resolution": [100, 64])");
  EXPECT_THAT(message({"dataset", "cache", "data.json"}, 2), HasSubstr("for example 96×64; or set enable_bucket = true"));
  config(R"("image_directory": "nowhere", "caption_extension": ".txt")");
  EXPECT_THAT(message({"dataset", "cache", "data.json"}, 2), HasSubstr("datasets[0]: the folder nowhere does not exist"));
  config(R"("image_directory": "images", "caption_extension": ".txt", "control_directory": "images")");
  fs::remove(folder_ / "images/b.txt");
  EXPECT_THAT(message({"dataset", "cache", "data.json", "--model_version", "klein-3b"}, 2), HasSubstr("klein-3b"));
  EXPECT_THAT(message({"dataset", "cache", "data.json", "--model_version", "klein-4b", "-m", "pico"}, 4),
              HasSubstr("not klein-4b"));
  EXPECT_THAT(message({"dataset", "cache", "data.json", "--all", "--skip_existing"}, 2), HasSubstr("contradict each other"));
}

TEST_F(DatasetCli, BucketsAreATable) {
  const Finished finished = flux2({"dataset", "buckets", "data.json"});
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("80×48"));
  EXPECT_THAT(finished.out, HasSubstr("48×80"));
  const Json result = json({"dataset", "buckets", "data.json"});
  EXPECT_EQ(result["datasets"][0]["buckets"],
            parse_json(R"([{"width": 48, "height": 80, "references": [], "images": 1, "batches": 1},
                           {"width": 80, "height": 48, "references": [], "images": 2, "batches": 1}])"));
  fs::remove(folder_ / "images/a.txt");
  EXPECT_EQ(json({"dataset", "buckets", "data.json"})["warnings"].size(), 2u);  // the bucket with one image, too
}

TEST_F(DatasetCli, CacheMakesFilesOnceAndRemovesForeignOnes) {
  Json result = json({"dataset", "cache", "data.json"});
  EXPECT_EQ(result["architecture"], "flux_2_custom_572ee0");
  EXPECT_EQ(result["latents"], 3);
  EXPECT_EQ(result["texts"], 3);
  EXPECT_THAT(cache_files(),
              ElementsAre("a_0160x0096_f2x572ee0.safetensors", "a_f2x572ee0_te.safetensors", "b_0160x0096_f2x572ee0.safetensors",
                          "b_f2x572ee0_te.safetensors", "c_0096x0160_f2x572ee0.safetensors", "c_f2x572ee0_te.safetensors"));
  const std::string before = bytes("cache/a_0160x0096_f2x572ee0.safetensors");
  result = json({"dataset", "cache", "data.json"});
  EXPECT_EQ(result["latents"], 0);
  EXPECT_EQ(result["texts"], 0);
  write("images/b.txt", "a yellow square");
  fs::remove(folder_ / "images/c.png");
  result = json({"dataset", "cache", "data.json", "--keep_cache"});
  EXPECT_EQ(result["texts"], 1);
  EXPECT_EQ(result["removed"], 0);
  result = json({"dataset", "cache", "data.json"});
  EXPECT_EQ(result["removed"], 2);
  EXPECT_THAT(cache_files(), Not(Contains(HasSubstr("c_"))));
  // The same image gives the same bytes.
  EXPECT_EQ(json({"dataset", "cache", "data.json", "--all", "--latents", "--num_workers", "1"})["latents"], 2);
  EXPECT_EQ(bytes("cache/a_0160x0096_f2x572ee0.safetensors"), before);
}

// The cached values equal those of `vae encode` and `encode-text`, for an image that needs no scaling.
TEST_F(DatasetCli, CachedValuesAreThoseOfTheEncoders) {
  image("one/a.png", 64, 64);
  write("one/a.txt", "a red circle");
  config(R"("image_directory": "one", "caption_extension": ".txt", "resolution": 64)");
  ASSERT_EQ(flux2({"dataset", "cache", "data.json", "--profile", "exact"}).status, 0);
  ASSERT_EQ(flux2({"vae", "encode", "one/a.png", "--profile", "exact", "-o", "latents.safetensors"}).status, 0);
  ASSERT_EQ(flux2({"encode-text", "a red circle", "--profile", "exact", "-o", "text.safetensors"}).status, 0);
  const auto values = [&](const std::string& file, const std::string& tensor) {
    return open_weights(folder_ / file)->open(tensor).to_floats();
  };
  const auto latents = values("one/a_0064x0064_f2x572ee0.safetensors", "latents_4x4_float32");
  const auto expected = values("latents.safetensors", "latents");
  ASSERT_EQ(latents.size(), expected.size());
  for (size_t i = 0; i < latents.size(); ++i) ASSERT_NEAR(latents[i], expected[i], 1e-4) << i;
  const auto states = values("one/a_f2x572ee0_te.safetensors", "ctx_vec_bfloat16");
  const auto text = values("text.safetensors", "text.embeddings");
  ASSERT_EQ(states.size(), text.size());
  for (size_t i = 0; i < states.size(); ++i) ASSERT_EQ(states[i], to_float(to_bf16(text[i]))) << i;
  const auto metadata = SafetensorsFile(folder_ / "one/a_f2x572ee0_te.safetensors").metadata();
  EXPECT_EQ(metadata.at("caption1"), "a red circle");
  EXPECT_EQ(metadata.at("architecture"), "flux_2_custom_572ee0");
}

TEST_F(DatasetCli, ReferencesMirrorsMasksAndVariants) {
  for (const char* name : {"control/a.png", "control/b.png", "control/c_0.png", "control/c_1.png"}) image(name, 100, 100);
  image("masks/a.png", 160, 96);
  write("images/a.txt", "circle, red, large");
  config(R"("image_directory": "images", "cache_directory": "cache", "caption_extension": ".txt", "resolution": 64,
            "control_directory": "control", "control_resolution": 48, "mask_directory": "masks", "flip_aug": true,
            "shuffle_tags": true, "caption_dropout_rate": 0.1)");
  const Json result = json({"dataset", "cache", "data.json", "--caption_variants", "4", "--vae_dtype", "bfloat16"});
  EXPECT_EQ(result["latents"], 3);
  EXPECT_EQ(result["texts"], 4);  // with the empty caption
  const auto names = [&](const std::string& file) {
    std::vector<std::string> list;
    const SafetensorsFile opened(folder_ / ("cache/" + file));
    for (const StoredTensor& t : opened.tensors()) list.push_back(t.name);
    std::sort(list.begin(), list.end());
    return list;
  };
  EXPECT_THAT(names("c_0096x0160_f2x572ee0.safetensors"),
              ElementsAre("flip_latents_4x4_bfloat16", "flip_latents_control_0_3x3_bfloat16",
                          "flip_latents_control_1_3x3_bfloat16", "latents_4x4_bfloat16", "latents_control_0_3x3_bfloat16",
                          "latents_control_1_3x3_bfloat16", "lossmask_4x4_float32"));
  EXPECT_THAT(names("a_f2x572ee0_te.safetensors"),
              ElementsAre("ctx_vec_0_bfloat16", "ctx_vec_1_bfloat16", "ctx_vec_2_bfloat16", "ctx_vec_3_bfloat16"));
  EXPECT_THAT(names("b_f2x572ee0_te.safetensors"), ElementsAre("ctx_vec_bfloat16"));
  EXPECT_THAT(names(".empty_f2x572ee0_te.safetensors"), ElementsAre("ctx_vec_bfloat16"));
}

// As musubi-tuner's commands are called: a version and the encoders, no transformer.
TEST_F(DatasetCli, VersionAndEncodersAreEnough) {
  const Json result = json({"dataset", "cache", "--latents", "--dataset_config", "data.json", "--model_version", "klein-base-4b",
                            "--vae", pico("ae.safetensors")});
  EXPECT_EQ(result["architecture"], "flux_2_klein_4b");
  EXPECT_THAT(cache_files(),
              ElementsAre("a_0160x0096_f2k4b.safetensors", "b_0160x0096_f2k4b.safetensors", "c_0096x0160_f2k4b.safetensors"));
  const Finished wrong = flux2(
      {"dataset", "cache", "data.json", "--text", "--model_version", "klein-base-4b", "--text_encoder", pico("text_encoder")});
  EXPECT_EQ(wrong.status, 4);
  EXPECT_THAT(wrong.err, HasSubstr("This text encoder has 7 layers, but the model reads the output of layer 27"));
}

TEST_F(DatasetCli, DebugModeWritesWhatWouldBeEncoded) {
  const Finished finished = flux2({"dataset", "cache", "data.json", "--debug_mode", "video"});
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_THAT(cache_files(), ElementsAre("a_0160x0096.jpg", "b_0160x0096.jpg", "c_0096x0160.jpg"));
  EXPECT_EQ(read_image(folder_ / "cache/c_0096x0160.jpg").height, 80);
  const Finished drawn = flux2({"dataset", "cache", "data.json", "--debug_mode", "console", "--console_num_images", "1"});
  EXPECT_TRUE(drawn.out.starts_with("images/a.png 80×48\n"));
  EXPECT_EQ(drawn.out.find("images/b.png"), std::string::npos);
}

TEST_F(DatasetCli, TomlOfMusubiTuner) {
  write("data.toml",
        "[general]\nresolution = [64, 64]\ncaption_extension = \".txt\"\nbatch_size = 1\nenable_bucket = true\n\n"
        "[[datasets]]\nimage_directory = \"images\"\ncache_directory = \"cache\"\nnum_repeats = 2\n");
  const Finished finished = flux2({"dataset", "buckets", "data.toml"});
  if (toml_available()) {
    EXPECT_EQ(finished.status, 0) << finished.err;
    EXPECT_THAT(finished.out, HasSubstr("6 batches per epoch"));
  } else {
    EXPECT_EQ(finished.status, 2);
    EXPECT_THAT(finished.err, HasSubstr("use a JSON file with the same keys"));
  }
}

TEST_F(DatasetCli, HelpHasExamples) {
  for (const char* action : {"check", "buckets", "cache"}) {
    const Finished finished = flux2({"dataset", action, "--help"});
    EXPECT_EQ(finished.status, 0);
    EXPECT_THAT(finished.out, HasSubstr(std::string("flux2 dataset ") + action));
  }
  EXPECT_THAT(flux2({"dataset", "cache", "--help-all"}).out, HasSubstr("no effect; accepted because musubi-tuner has it"));
}

}  // namespace
}  // namespace flux2::test
