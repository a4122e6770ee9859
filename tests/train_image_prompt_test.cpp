// flux2 train with kind image_prompt: from images or drawn scenes to an adapter that generate uses.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/image_prompt.h"
#include "tests/support/program.h"
#include "tests/support/training_images.h"
#include "weights/weight_source.h"

namespace flux2::test {
namespace {

using testing::HasSubstr;

class ImagePromptTraining : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    const Finished made = flux2({"models", "synth", "--variant", "clip-tiny", "--out", "clip"});
    ASSERT_EQ(made.status, 0) << made.err;
  }
  Finished train(const std::string& data, const std::string& out, const char* steps, std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"train",
                                      data,
                                      "--kind",
                                      "image_prompt",
                                      "--image_prompt_encoder",
                                      "clip",
                                      "--seed",
                                      "7",
                                      "--profile",
                                      "exact",
                                      "--output_dir",
                                      out,
                                      "--output_name",
                                      "x",
                                      "--max_train_steps",
                                      steps,
                                      "--timestep_sampling",
                                      "flux2_shift",
                                      "--save_state_on_train_end"};
    words.insert(words.end(), more.begin(), more.end());
    return flux2(words);
  }
  void write_data() const {
    write_bars(folder_ / "images", 3);
    write("data.json", R"({"general": {"resolution": 64, "caption_extension": ".txt", "batch_size": 2},
      "datasets": [{"image_directory": "images", "cache_directory": "cache"}]})");
  }
};

TEST_F(ImagePromptTraining, ResumesToTheSameBytesAndGenerates) {
  write_data();
  write("prompts.txt", "bars --ip images/bars0.png --w 64 --h 64 --s 2\n");
  const std::vector<std::string> more = {"--ema_decay", "0.9", "--image_prompt_dropout", "0.3"};
  const Finished whole = train("data.json", "whole", "4", more);
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_THAT(whole.out + whole.err, HasSubstr("image prompt of 4 tokens"));
  ASSERT_EQ(train("data.json", "parts", "2", more).status, 0);
  std::vector<std::string> again = more;
  again.insert(again.end(), {"--resume", "--sample_prompts", "prompts.txt", "--sample_every_n_steps", "4"});
  const Finished rest = train("data.json", "parts", "4", again);
  ASSERT_EQ(rest.status, 0) << rest.err;
  for (const char* file : {"x.safetensors", "x-ema.safetensors"})
    EXPECT_EQ(trained_values(folder_ / "whole" / file), trained_values(folder_ / "parts" / file)) << file;
  EXPECT_EQ(files_in("parts/sample"), 1u);

  const ImagePromptConfig config = detect_image_prompt(*open_weights(folder_ / "whole/x.safetensors"));
  EXPECT_EQ(config.form, ImagePromptForm::Decoupled);
  EXPECT_EQ(config.double_blocks, 2);
  const Finished picture = generate({"", "--image-prompt", "images/bars0.png:0.8", "--image-prompt-adapter",
                                     "whole/x.safetensors", "--image-prompt-encoder", "clip", "-o", "y.png"});
  ASSERT_EQ(picture.status, 0) << picture.err;
}

TEST_F(ImagePromptTraining, TokensOnDrawnScenes) {
  write("scenes.json", R"({"datasets": [{"resolution": 64, "batch_size": 4, "caption_dropout_rate": 0.5,
    "scenes": {"count": 8, "redraw": 0, "edit_share": 0.5, "two_reference_share": 0}}]})");
  const std::vector<std::string> more = {"--image_prompt_form",    "tokens",    "--image_prompt_tokens",   "2",
                                         "--image_prompt_feature", "projected", "--gradient_checkpointing"};
  const Finished whole = train("scenes.json", "whole", "4", more);
  ASSERT_EQ(whole.status, 0) << whole.err;
  ASSERT_EQ(train("scenes.json", "parts", "2", more).status, 0);
  std::vector<std::string> again = more;
  again.emplace_back("--resume");
  ASSERT_EQ(train("scenes.json", "parts", "4", again).status, 0);
  EXPECT_EQ(trained_values(folder_ / "whole/x.safetensors"), trained_values(folder_ / "parts/x.safetensors"));
  const ImagePromptConfig config = detect_image_prompt(*open_weights(folder_ / "whole/x.safetensors"));
  EXPECT_EQ(config.form, ImagePromptForm::Tokens);
  EXPECT_EQ(config.tokens, 2);
  EXPECT_EQ(config.feature, ImageFeature::Projected);

  // A new run starts from a file of the same geometry only.
  std::vector<std::string> start = more;
  start.insert(start.end(), {"--network_weights", "whole/x.safetensors"});
  start[3] = "3";
  const Finished refused = train("scenes.json", "more", "1", start);
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.err, HasSubstr("reads vectors of"));
}

// The image prompt is a second image of the same element instead of the target.
TEST_F(ImagePromptTraining, SecondImagesAsImagePrompts) {
  write_bars(folder_ / "images", 3);
  const auto data = [&](const std::string& keys) {
    write("data.json", R"({"general": {"resolution": 64, "caption_extension": ".txt", "batch_size": 2},
      "datasets": [{"image_directory": "images", "cache_directory": "cache")" +
                           keys + "}]}");
  };
  const auto trained = [&](const std::string& out, const char* steps = "2", const std::vector<std::string>& more = {}) {
    const Finished done = train("data.json", out, steps, more);
    EXPECT_EQ(done.status, 0) << done.err;
    return trained_values(folder_ / out / "x.safetensors");
  };
  data("");
  const auto targets = trained("targets");
  // Another image is another vector; the images themselves in that folder are about the targets.
  fs::create_directories(folder_ / "prompts");
  for (int i = 0; i < 3; ++i)
    fs::copy_file(folder_ / fmt::format("images/bars{}.png", (i + 1) % 3), folder_ / fmt::format("prompts/bars{}_0.png", i));
  data(R"(, "image_prompt_directory": "prompts")");
  EXPECT_NE(trained("prompts"), targets);
  // Other images of the folder, a run in two parts like one.
  data(R"(, "image_prompt_group": "folder", "num_repeats": 3)");
  const auto whole = trained("whole", "4");
  EXPECT_NE(whole, targets);
  trained("parts", "2");
  EXPECT_EQ(trained("parts", "4", {"--resume"}), whole);

  fs::remove(folder_ / "prompts/bars1_0.png");
  data(R"(, "image_prompt_directory": "prompts")");
  const Finished missing = train("data.json", "missing", "1");
  EXPECT_NE(missing.status, 0);
  EXPECT_THAT(missing.err, HasSubstr("no image prompt in prompts for 1 of 3 images: bars1.png"));
  data(R"(, "image_prompt_group": "caption")");
  EXPECT_THAT(train("data.json", "missing", "1").err, HasSubstr("needs another image with the same caption"));
  data(R"(, "image_prompt_group": "folder")");
  const Finished adapter = flux2({"train", "data.json", "--max_train_steps", "1", "--output_dir", "lora", "--output_name", "x"});
  EXPECT_THAT(adapter.err, HasSubstr("the keys for image prompts have no effect, because kind is not image_prompt"));
}

TEST_F(ImagePromptTraining, MistakesAreNamed) {
  write_data();
  const auto error = [&](const std::vector<std::string>& more) {
    const Finished done = train("data.json", "out", "1", more);
    EXPECT_NE(done.status, 0);
    return done.err;
  };
  EXPECT_THAT(error({"--network_dim", "4"}), HasSubstr("--network_dim cannot be combined with --kind image_prompt"));
  EXPECT_THAT(error({"--preset", "style"}), HasSubstr("presets are for adapters of layers"));
  EXPECT_THAT(error({"--image_prompt_encoder", "nothing"}), HasSubstr("the image encoder nothing does not exist"));
  EXPECT_THAT(error({"--train", "transformer"}), HasSubstr("cannot be combined with --full or --train"));
  const Finished adapter = flux2({"train", "data.json", "--image_prompt_form", "tokens"});
  EXPECT_NE(adapter.status, 0);
  EXPECT_THAT(adapter.err, HasSubstr("--kind image_prompt"));
  write("prompts.txt", "bars --ip images/bars0.png\n");
  const Finished sample = flux2({"train", "data.json", "--sample_prompts", "prompts.txt"});
  EXPECT_NE(sample.status, 0);
  EXPECT_THAT(sample.err, HasSubstr("only an image-prompt adapter can use"));
}

}  // namespace
}  // namespace flux2::test
