// examples/pico/train.sh: every stage runs, with a few scenes and two steps, and the next one starts from its files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/support/program.h"
#include "weights/weight_source.h"

namespace flux2::test {
namespace {

using testing::HasSubstr;

class PicoTraining : public Cli {
 protected:
  Finished stage(const std::string& name) const {
    Start s = start({});
    s.arguments = {"/bin/bash", (source_folder() / "examples/pico/train.sh").string(), name};
    s.environment.emplace("FLUX2", program());
    s.environment.emplace("OUT", (folder_ / "run").string());
    s.environment.emplace("QUICK", "1");
    return run(s);
  }
  std::map<std::string, Shape> shapes(const fs::path& file) const {
    std::map<std::string, Shape> all;
    const auto source = open_weights(file);
    for (const StoredTensor& t : source->tensors()) all[t.name] = t.shape;
    return all;
  }
};

TEST_F(PicoTraining, StagesFollowEachOther) {
  for (const char* name : {"model", "autoencoder", "transformer", "larger", "distilled"}) {
    const Finished done = stage(name);
    ASSERT_EQ(done.status, 0) << name << "\n" << done.err << done.out;
  }
  const fs::path model = folder_ / "run/model", quick = folder_ / "run/model-4-steps";
  EXPECT_TRUE(fs::exists(model / "tokenizer/words.txt"));
  for (const char* part : {"flux-2-pico.safetensors", "ae.safetensors", "text_encoder/model.safetensors"})
    EXPECT_EQ(shapes(model / part), shapes(pico_folder() / part)) << part;
  EXPECT_EQ(shapes(quick / "flux-2-distilled.safetensors"), shapes(pico_folder() / "flux-2-pico.safetensors"));
  uintmax_t bytes = 0;
  for (const auto& file : fs::recursive_directory_iterator(model)) bytes += file.is_regular_file() ? file.file_size() : 0;
  EXPECT_LT(bytes, 33u << 20);

  // The statistics of the latents were measured, and the sibling says how it is used.
  const auto means = open_weights(model / "ae.safetensors")->open("bn.running_mean").to_floats();
  EXPECT_TRUE(std::any_of(means.begin(), means.end(), [](float v) { return v != 0; }));
  const Json index = Json::parse(read_text_file(quick / "model_index.json"));
  EXPECT_EQ(index["is_distilled"], true);
  EXPECT_EQ(index["flux2"]["steps"], 4);
  EXPECT_EQ(index["flux2"]["sizes"].size(), 5u);

  const Finished picture =
      flux2({"generate", "a zebra on a blue background", "-m", quick.string(), "--seed", "1", "-o", "x.png", "--json"});
  ASSERT_EQ(picture.status, 0) << picture.err;
  EXPECT_THAT(picture.err, HasSubstr("was not trained on the word \"zebra\""));
  const Finished large =
      flux2({"generate", "a red circle", "-m", quick.string(), "--seed", "1", "--width", "320", "--height", "64", "-o", "y.png"});
  ASSERT_EQ(large.status, 0) << large.err;
  EXPECT_THAT(large.err, HasSubstr("was not trained on images of 320x64"));
}

TEST_F(PicoTraining, ImagePromptsAreAStageOfTheirOwn) {
  const Finished done = stage("image_prompt");
  ASSERT_EQ(done.status, 0) << done.err << done.out;
  EXPECT_TRUE(fs::exists(folder_ / "run/image-prompt/image-prompt.safetensors"));
}

TEST_F(PicoTraining, UnknownStagesAreRefused) {
  const Finished done = stage("transfomer");
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.err, HasSubstr("model|autoencoder|transformer|larger|distilled|all"));
}

// A run on scenes that is resumed gives the same bytes as one that was not interrupted.
TEST_F(PicoTraining, ScenesResumeToTheSameBytes) {
  write("scenes.json", R"({"datasets": [{"resolution": 64, "batch_size": 2, "num_repeats": 1, "caption_dropout_rate": 0.2,
    "scenes": {"count": 6, "edit_share": 0.5, "two_reference_share": 0}}]})");
  const auto steps = [&](const std::string& out, const char* count, std::vector<std::string> more) {
    std::vector<std::string> words = {"train",
                                      "scenes.json",
                                      "--seed",
                                      "7",
                                      "--output_dir",
                                      out,
                                      "--output_name",
                                      "x",
                                      "--profile",
                                      "exact",
                                      "--train",
                                      "transformer+text_encoder",
                                      "--learning_rate",
                                      "1e-4",
                                      "--max_train_steps",
                                      count,
                                      "--timestep_sampling",
                                      "flux2_shift",
                                      "--save_state_on_train_end"};
    words.insert(words.end(), more.begin(), more.end());
    return flux2(words);
  };
  const Finished whole = steps("whole", "4", {});
  ASSERT_EQ(whole.status, 0) << whole.err;
  ASSERT_EQ(steps("parts", "2", {}).status, 0);
  const Finished rest = steps("parts", "4", {"--resume"});
  ASSERT_EQ(rest.status, 0) << rest.err;
  for (const char* file : {"x.safetensors", "x-text_encoder.safetensors"}) {
    const auto a = open_weights(folder_ / "whole" / file), b = open_weights(folder_ / "parts" / file);
    for (const StoredTensor& t : a->tensors()) ASSERT_EQ(a->open(t.name).to_floats(), b->open(t.name).to_floats()) << t.name;
  }
}

TEST_F(PicoTraining, MistakesAreNamed) {
  write("scenes.json", R"({"datasets": [{"resolution": 64, "scenes": {"count": 8}}]})");
  const auto error = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"train", "scenes.json", "--output_dir", "out"};
    words.insert(words.end(), more.begin(), more.end());
    const Finished done = flux2(words);
    EXPECT_EQ(done.status, 2) << done.err;
    return done.err;
  };
  EXPECT_THAT(error({"--distill_steps", "4"}), HasSubstr("it needs --train transformer"));
  EXPECT_THAT(error({"--train", "transformer", "--distill_steps", "3"}), HasSubstr("multiple of --distill_steps"));
  EXPECT_THAT(error({"--train", "transformer", "--distill_steps", "4", "--from_scratch"}), HasSubstr("from_scratch"));
  const Finished cached = flux2({"dataset", "cache", "scenes.json"});
  EXPECT_NE(cached.status, 0);
  EXPECT_THAT(cached.err, HasSubstr("scenes are drawn while training"));
}

}  // namespace
}  // namespace flux2::test
