// Training from the command line, with the bundled model: whole runs, interruptions, several processes, mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <random>
#include <thread>

#include "tests/support/program.h"
#include "tests/support/training_images.h"
#include "weights/weight_source.h"

namespace flux2::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class Train : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    write_bars(folder_ / "images", 6);
    write("data.json", R"({"general": {"resolution": 64, "caption_extension": ".txt", "batch_size": 2},
      "datasets": [{"image_directory": "images", "cache_directory": "cache"}]})");
  }

  std::vector<std::string> words(const std::string& out, std::vector<std::string> more) const {
    std::vector<std::string> all = {
        "train",           "data.json", "--network_dim",       "2",           "--network_alpha", "2",
        "--learning_rate", "1e-3",      "--timestep_sampling", "flux2_shift", "--seed",          "7",
        "--output_dir",    out,         "--output_name",       "bars",        "--profile",       "exact"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Finished train(const std::string& out, std::vector<std::string> more) const { return flux2(words(out, std::move(more))); }

  std::map<std::string, std::vector<float>> values(const std::string& name) const { return trained_values(folder_ / name); }
  bool has_state(const std::string& out) const {
    if (!exists(out)) return false;
    for (const auto& entry : fs::directory_iterator(folder_ / out))
      if (entry.path().string().ends_with("-state")) return true;
    return false;
  }
};

TEST_F(Train, ASecondRunSaysThatItReplacesTheFile) {
  const Finished first = train("out", {"--max_train_steps", "1", "--save_state"});
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_THAT(first.err, Not(HasSubstr("earlier run")));
  const Finished second = train("out", {"--max_train_steps", "1"});
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_THAT(second.err, HasSubstr("out/bars.safetensors is from an earlier run; this run will replace it"));
  const Finished resumed = train("out", {"--max_train_steps", "2", "--resume"});
  EXPECT_THAT(resumed.err, Not(HasSubstr("earlier run")));
}

TEST_F(Train, WritesAdapterStatesSamplesAndReport) {
  write("prompts.txt", "bars number 1 --w 64 --h 64 --s 2 --d 5\n");
  const Finished done = train("out", {"--max_train_steps", "6", "--save_every_n_steps", "3", "--save_state", "--sample_prompts",
                                      "prompts.txt", "--sample_every_n_steps", "3", "--logging_dir", "logs"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(done.out, "out/bars.safetensors\n");
  EXPECT_TRUE(exists("out/bars-step00000003.safetensors"));
  EXPECT_TRUE(exists("out/bars-step00000003-state/state.json"));
  EXPECT_TRUE(exists("out/bars-state/state.json"));
  EXPECT_TRUE(exists("out/report.html"));
  EXPECT_EQ(files_in("out/sample"), 2u);
  EXPECT_EQ(files_in("logs"), 1u);
  const auto file = open_weights(folder_ / "out/bars.safetensors");
  EXPECT_EQ(file->metadata().at("ss_steps"), "6");
  EXPECT_EQ(file->metadata().at("ss_network_dim"), "2");
  EXPECT_TRUE(file->find("lora_unet_single_blocks_0_linear1.lora_up.weight"));

  // The program uses it as any other adapter, and it changes the image.
  EXPECT_EQ(generate({"bars number 1", "--seed", "1", "-o", "plain.png"}).status, 0);
  const Finished used = generate({"bars number 1", "--seed", "1", "--lora", "out/bars.safetensors:3", "-o", "with.png"});
  EXPECT_EQ(used.status, 0) << used.err;
  EXPECT_NE(bytes("plain.png"), bytes("with.png"));

  fs::remove(folder_ / "out/report.html");
  EXPECT_EQ(flux2({"train", "report", "out"}).status, 0);
  EXPECT_THAT(bytes("out/report.html"), HasSubstr("<html"));
}

TEST_F(Train, ResumesToTheSameBytes) {
  ASSERT_EQ(train("whole", {"--max_train_steps", "8"}).status, 0);
  // The first part stops in the middle of an epoch of three steps.
  ASSERT_EQ(train("parts", {"--max_train_steps", "5", "--save_state_on_train_end"}).status, 0);
  const Finished rest = train("parts", {"--max_train_steps", "8", "--resume"});
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(values("parts/bars.safetensors"), values("whole/bars.safetensors"));
}

TEST_F(Train, EveryOptimiserResumesToTheSameBytes) {
  for (const std::string type : {"adamwschedulefree", "prodigy", "came", "lion8bit"}) {
    const std::vector<std::string> options = {"--optimizer_type", type, "--network_args", "loraplus_lr_ratio=1"};
    const auto steps = [&](const char* count, bool resume) {
      std::vector<std::string> all = options;
      all.insert(all.end(), {"--max_train_steps", count, "--save_state_on_train_end"});
      if (resume) all.push_back("--resume");
      return all;
    };
    ASSERT_EQ(train(type + "-whole", steps("4", false)).status, 0);
    ASSERT_EQ(train(type, steps("2", false)).status, 0);
    const Finished rest = train(type, steps("4", true));
    ASSERT_EQ(rest.status, 0) << rest.err;
    EXPECT_EQ(values(type + "/bars.safetensors"), values(type + "-whole/bars.safetensors")) << type;
  }
}

TEST_F(Train, SurvivesKills) {
  const int kills = std::getenv("FLUX2_KILLS") ? std::atoi(std::getenv("FLUX2_KILLS")) : 4;
  const std::string steps = std::to_string(kills * 3);  // enough for most kills to meet a run that has not ended
  const std::vector<std::string> options = {"--max_train_steps", steps,       "--save_every_n_steps", "2",  "--save_state",
                                            "--optimizer_type",  "adamw8bit", "--ema_decay",          "0.9"};
  ASSERT_EQ(train("whole", options).status, 0);
  std::mt19937 random(3);
  const auto next = [&] {
    std::vector<std::string> again = options;
    again.insert(again.end(), {"--progress", "json"});
    if (has_state("parts")) again.push_back("--resume");
    return words("parts", again);
  };
  int killed = 0;
  for (int i = 0; i < kills; ++i) {
    Subprocess process(start(next()));
    if (i % 4 != 0) process.wait_for_error_text("\"event\":\"step\"");  // the others: while it loads
    std::this_thread::sleep_for(std::chrono::milliseconds(std::uniform_int_distribution<int>(0, 400)(random)));
    process.signal(SIGKILL);
    killed += process.wait().status == 128 + SIGKILL;
  }
  RecordProperty("killed", killed);
  EXPECT_GT(killed, 0) << "every run ended before it could be killed";
  const Finished done = flux2(next());
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(values("parts/bars.safetensors"), values("whole/bars.safetensors"));
  EXPECT_EQ(values("parts/bars-ema.safetensors"), values("whole/bars-ema.safetensors"));
  for (const auto& entry : fs::directory_iterator(folder_ / "parts"))
    EXPECT_FALSE(entry.path().string().ends_with(".tmp")) << entry.path();
}

TEST_F(Train, InterruptSavesAndEnds) {
  Subprocess process(start(words("out", {"--max_train_steps", "100000", "--progress", "json"})));
  ASSERT_TRUE(process.wait_for_error_text("\"event\":\"step\""));
  process.signal(SIGINT);
  const Finished ended = process.wait(60);
  EXPECT_EQ(ended.status, 128 + SIGINT) << ended.err;
  EXPECT_TRUE(has_state("out"));
  bool adapter = false;
  for (const auto& entry : fs::directory_iterator(folder_ / "out"))
    adapter = adapter || entry.path().extension() == ".safetensors";
  EXPECT_TRUE(adapter);
}

TEST_F(Train, TrainsTheWholeTransformer) {
  const auto with = [&](std::vector<std::string> more) {
    const std::vector<std::string> options = {"train",
                                              "data.json",
                                              "--full",
                                              "--learning_rate",
                                              "1e-4",
                                              "--freeze",
                                              "img_in",
                                              "norm",
                                              "--seed",
                                              "3",
                                              "--profile",
                                              "exact",
                                              "--output_dir",
                                              "full",
                                              "--output_name",
                                              "bars",
                                              "--optimizer_type",
                                              "adafactor",
                                              "--optimizer_args",
                                              "relative_step=False",
                                              "scale_parameter=False"};
    more.insert(more.begin(), options.begin(), options.end());
    return flux2(more);
  };
  const Finished done = with({"--max_train_steps", "3", "--save_state_on_train_end"});
  ASSERT_EQ(done.status, 0) << done.err;
  const auto trained = values("full/bars.safetensors");
  const auto before = open_weights(pico_folder() / "flux-2-pico.safetensors");
  EXPECT_EQ(trained.size(), before->tensors().size());
  EXPECT_EQ(trained.at("img_in.weight"), before->open("img_in.weight").to_floats());
  EXPECT_NE(trained.at("txt_in.weight"), before->open("txt_in.weight").to_floats());
  EXPECT_TRUE(exists("full/bars-state/model.safetensors"));
  const Finished rest = with({"--max_train_steps", "4", "--resume"});
  EXPECT_EQ(rest.status, 0) << rest.err;
  const Finished used = generate({"bars number 1", "-m", "pico", "--dit", "full/bars.safetensors", "--seed", "1", "-o", "x.png"});
  EXPECT_EQ(used.status, 0) << used.err;
  EXPECT_EQ(with({"--network_args", "dora=True"}).status, 2);
}

// Two processes with a batch each compute the gradient of one process that accumulates two batches.
TEST_F(Train, TwoProcessesGiveTheGradientOfOne) {
  // Plain gradient descent, so that rounding is not amplified.
  const std::vector<std::string> options = {"--optimizer_type", "sgd", "--max_train_steps", "1",
                                            "--max_grad_norm",  "0",   "--learning_rate",   "1"};
  std::vector<std::string> one = options, two = options;
  one.insert(one.end(), {"--gradient_accumulation_steps", "2"});
  write("prompts.txt", "bars --w 64 --h 64 --s 1 --d 5\n");  // the second process waits while the first makes an image
  two.insert(two.end(), {"--ranks", "2", "--sample_prompts", "prompts.txt", "--sample_every_n_steps", "1"});
  const Finished single = train("one", one), both = train("two", two);
  ASSERT_EQ(single.status, 0) << single.err;
  ASSERT_EQ(both.status, 0) << both.err;
  EXPECT_EQ(both.out, "two/bars.safetensors\n");
  EXPECT_EQ(files_in("two/sample"), 1u);
  const auto a = values("one/bars.safetensors"), b = values("two/bars.safetensors");
  ASSERT_EQ(a.size(), b.size());
  double difference = 0, size = 0;
  for (const auto& [name, expected] : a) {
    if (!name.ends_with("lora_up.weight")) continue;  // these start at 0, so they are the gradient itself
    for (size_t i = 0; i < expected.size(); ++i) {
      difference += std::pow(double{expected[i]} - b.at(name)[i], 2);
      size += std::pow(double{expected[i]}, 2);
    }
  }
  EXPECT_GT(size, 0);
  EXPECT_LE(std::sqrt(difference / size), 1e-6);
}

// --preset and --seed are also options of generate, with other values.
TEST_F(Train, PresetsSetOptions) {
  const Finished done = train("out", {"--preset", "character", "--max_train_steps", "1"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(open_weights(folder_ / "out/bars.safetensors")->metadata().at("ss_gradient_checkpointing"), "True");
  EXPECT_THAT(train("bad", {"--preset", "draft"}).err, HasSubstr("character"));
}

TEST_F(Train, MistakesAreNamed) {
  const auto mistake = [&](std::vector<std::string> more, const std::string& sentence) {
    const Finished done = train("bad", std::move(more));
    EXPECT_EQ(done.status, 2) << done.err;
    EXPECT_THAT(done.err, HasSubstr(sentence));
  };
  mistake({"--network_dim", "0"}, "flux2: --network_dim must be at least 1");
  mistake({"--network_dim", "few"}, "flux2: --network_dim: \"few\" is not a whole number");
  mistake({"--network_args", "rank_dropuot=0.1"}, "rank_dropout");
  mistake({"--optimizer_type", "adamv"}, "adamw");
  mistake({"--lr_scheduler", "cosin"}, "cosine");
  mistake({"--max_train_stepz", "5"}, "--max-train-steps");
  mistake({"--sample_every_n_steps", "2"}, "sample images need prompts");
  mistake({"--resume"}, "no complete state");
  write("data.json", R"({"general": {"resolutoin": 64}, "datasets": [{"image_directory": "images"}]})");
  mistake({}, "resolution");
  write("data.json",
        R"({"general": {"resolution": 64, "caption_extension": ".txt"}, "datasets": [{"image_directory": "nothing"}]})");
  mistake({}, "nothing");
  EXPECT_THAT(flux2({"train", "images"}).err, HasSubstr("images is a folder, not a .toml or .json file"));
  EXPECT_THAT(train("bad", {"--sample_prompts", "none.txt", "--sample_at_first"}).err, StartsWith("flux2: cannot open none.txt"));
  EXPECT_THAT(flux2({"train", "nofile.toml"}).err, StartsWith("flux2: cannot open nofile.toml: "));  // named once
}

TEST_F(Train, AStateOfAnotherRunIsRefused) {
  ASSERT_EQ(train("out", {"--max_train_steps", "2", "--save_state_on_train_end"}).status, 0);
  std::vector<std::string> other = words("out", {"--max_train_steps", "4", "--resume"});
  *(std::find(other.begin(), other.end(), "1e-3")) = "1e-2";
  const Finished refused = flux2(other);
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.err, HasSubstr("learning_rate"));
  other.push_back("--resume_force");
  EXPECT_EQ(flux2(other).status, 0);
}

TEST_F(Train, ShowsTimesteps) {
  const Finished shown = train("out", {"--show_timesteps", "console"});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_FALSE(exists("out"));
}

}  // namespace
}  // namespace flux2::test
