// Training of the autoencoder, and of the text encoder with the transformer, from the command line, with the bundled model.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/support/program.h"
#include "tests/support/training_images.h"
#include "weights/safetensors_writer.h"
#include "weights/weight_source.h"

namespace flux2::test {
namespace {

using testing::HasSubstr;

class TrainParts : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    // Eight drawings: discs and stripes of several colours.
    write_training_images(folder_ / "images", "drawing", 8, [](int i, int x, int y, uint8_t* p) {
      const bool disc = std::hypot(x - 20 - 3 * i, y - 30) < 10 + i;
      const bool stripe = (x + y) / 16 % 2 == 0;
      p[0] = static_cast<uint8_t>(disc ? 230 - 20 * i : stripe ? 40 : 200);
      p[1] = static_cast<uint8_t>(disc ? 30 * i : stripe ? 120 : 220 - 10 * i);
      p[2] = static_cast<uint8_t>(disc ? 90 : stripe ? 200 - 15 * i : 60);
    });
    write_data(4);
  }
  void write_data(int batch) const {
    write("data.json", fmt::format(R"({{"general": {{"resolution": 64, "caption_extension": ".txt", "batch_size": {}}},
      "datasets": [{{"image_directory": "images", "cache_directory": "cache"}}]}})",
                                   batch));
  }

  Finished train(const std::string& out, std::vector<std::string> more) const {
    std::vector<std::string> all = {"train", "data.json",     "--seed", "7",         "--output_dir",
                                    out,     "--output_name", "x",      "--profile", "exact"};
    all.insert(all.end(), more.begin(), more.end());
    return flux2(all);
  }
  std::map<std::string, std::vector<float>> values(const std::string& path) const {
    return trained_values(fs::path(path).is_absolute() ? fs::path(path) : folder_ / path);
  }
  // The bundled autoencoder with noise in all its weights.
  void write_damaged_autoencoder(const std::string& name, float strength) const {
    const auto file = open_weights(pico("ae.safetensors"));
    std::vector<std::pair<std::string, Tensor>> tensors;
    std::mt19937 random(5);
    for (const StoredTensor& t : file->tensors()) {
      Tensor value = file->open(t.name);
      if (t.name.ends_with(".weight") && t.shape.rank() == 4) {
        std::vector<float> v = value.to_floats();
        double squares = 0;
        for (const float x : v) squares += double{x} * x;
        std::normal_distribution<float> noise(0,
                                              strength * static_cast<float>(std::sqrt(squares / static_cast<double>(v.size()))));
        for (float& x : v) x += noise(random);
        value = Tensor::host_copy(v.data(), DType::F32, t.shape);
      }
      tensors.emplace_back(t.name, value);
    }
    save_tensors(folder_ / name, tensors);
  }
  // The mean PSNR of the reconstructions of a step.
  double psnr(const std::string& log, int64_t step) const {
    double sum = 0;
    int count = 0;
    std::istringstream lines(bytes(log));
    for (std::string line; std::getline(lines, line);) {
      const Json event = Json::parse(line);
      if (event.value("event", "") != "sample" || event.value("step", int64_t{-1}) != step) continue;
      const std::string text = event.value("prompt", "");  // "drawing3: 27.12 dB"
      sum += std::stod(text.substr(text.find(": ") + 2));
      ++count;
    }
    EXPECT_EQ(count, 4) << log;
    return sum / count;
  }
};

TEST_F(TrainParts, ADamagedAutoencoderRecovers) {
  write_damaged_autoencoder("damaged.safetensors", 0.3f);
  const Finished done =
      train("out", {"--train", "vae", "--vae", "damaged.safetensors", "--vae_crop", "32", "--learning_rate", "8e-4",
                    "--max_train_steps", "24", "--lr_scheduler", "cosine", "--sample_at_first", "--sample_every_n_steps", "24"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(done.out, "out/x.safetensors\n");
  EXPECT_THAT(done.err, HasSubstr("the autoencoder is trained"));
  const double before = psnr("out/x.jsonl", 0), after = psnr("out/x.jsonl", 24);
  fmt::print("PSNR of the damaged autoencoder {:.2f} dB, after 24 steps {:.2f} dB\n", before, after);
  EXPECT_GT(after, before + 5);
  EXPECT_TRUE(exists("out/report.html"));

  // The file takes the place of the one it came from: same names and shapes, other statistics.
  const auto source = open_weights(pico("ae.safetensors")), made = open_weights(folder_ / "out/x.safetensors");
  ASSERT_EQ(made->tensors().size(), source->tensors().size());
  for (const StoredTensor& t : source->tensors()) {
    ASSERT_TRUE(made->find(t.name)) << t.name;
    EXPECT_EQ(made->find(t.name)->shape, t.shape) << t.name;
  }
  EXPECT_NE(made->open("bn.running_mean").to_floats(), source->open("bn.running_mean").to_floats());
  const Finished used = generate({"a red circle", "-m", "pico", "--seed", "1", "--vae", "out/x.safetensors", "-o", "with.png"});
  EXPECT_EQ(used.status, 0) << used.err;
}

TEST_F(TrainParts, TheAutoencoderResumesToTheSameBytes) {
  const auto steps = [&](const std::string& out, const char* count, bool resume) {
    std::vector<std::string> words = {
        "--train",          "vae",   "--vae_crop",        "16",  "--learning_rate",          "1e-4", "--ema_decay", "0.9",
        "--optimizer_type", "adamw", "--max_train_steps", count, "--save_state_on_train_end"};
    if (resume) words.push_back("--resume");
    return train(out, words);
  };
  ASSERT_EQ(steps("whole", "5", false).status, 0);
  ASSERT_EQ(steps("parts", "3", false).status, 0);
  const Finished rest = steps("parts", "5", true);
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(values("parts/x.safetensors"), values("whole/x.safetensors"));
  EXPECT_EQ(values("parts/x-ema.safetensors"), values("whole/x-ema.safetensors"));
  EXPECT_NE(values("whole/x-ema.safetensors"), values("whole/x.safetensors"));
}

// The dataset may have had smaller batches when the state was saved, and so more of them.
TEST_F(TrainParts, TheAutoencoderResumesBehindTheEndOfAnEpoch) {
  const auto steps = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"--train", "vae", "--vae_crop", "32", "--freeze", "^encoder", "--save_state_on_train_end"});
    return train("out", words);
  };
  ASSERT_EQ(steps({"--max_train_steps", "1"}).status, 0);
  Json state = Json::parse(bytes("out/x-state/state.json"));
  state["micro_in_epoch"] = 99;
  write("out/x-state/state.json", state.dump());
  const Finished rest = steps({"--max_train_steps", "3", "--resume"});
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(Json::parse(bytes("out/x-state/state.json"))["epoch"], 2);
}

TEST_F(TrainParts, FrozenTensorsOfTheAutoencoderStay) {
  ASSERT_EQ(train("out", {"--train", "vae", "--vae_crop", "32", "--learning_rate", "1e-3", "--max_train_steps", "1", "--freeze",
                          "^encoder"})
                .status,
            0);
  const auto before = values(pico("ae.safetensors")), after = values("out/x.safetensors");
  for (const auto& [name, value] : before) {
    if (name.starts_with("encoder.") || name.starts_with("bn.")) {
      EXPECT_EQ(after.at(name), value) << name;
    }
  }
  EXPECT_NE(after.at("decoder.conv_out.weight"), before.at("decoder.conv_out.weight"));
}

TEST_F(TrainParts, TheTextEncoderLearnsWithTheTransformer) {
  write_data(2);
  write("prompts.txt", "drawing number 1 --w 64 --h 64 --s 2 --d 5\n");
  const auto steps = [&](const std::string& out, const char* count, std::vector<std::string> more) {
    std::vector<std::string> words = {"--train",
                                      "transformer+text_encoder",
                                      "--learning_rate",
                                      "1e-4",
                                      "--text_encoder_lr",
                                      "1e-3",
                                      "--max_train_steps",
                                      count,
                                      "--timestep_sampling",
                                      "flux2_shift",
                                      "--save_state_on_train_end"};
    words.insert(words.end(), more.begin(), more.end());
    return train(out, words);
  };
  const Finished whole = steps("whole", "4", {"--sample_prompts", "prompts.txt", "--sample_every_n_steps", "2"});
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_THAT(whole.err, HasSubstr("with its text encoder"));
  EXPECT_EQ(files_in("whole/sample"), 2u);
  ASSERT_EQ(steps("parts", "2", {}).status, 0);
  const Finished rest = steps("parts", "4", {"--resume"});
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(values("parts/x.safetensors"), values("whole/x.safetensors"));
  EXPECT_EQ(values("parts/x-text_encoder.safetensors"), values("whole/x-text_encoder.safetensors"));

  // Layers that the model reads have changed, the last one and the words of other prompts have not.
  const auto before = values(pico("text_encoder/model.safetensors")), after = values("whole/x-text_encoder.safetensors");
  ASSERT_EQ(before.size(), after.size());
  EXPECT_NE(after.at("model.layers.0.mlp.up_proj.weight"), before.at("model.layers.0.mlp.up_proj.weight"));
  EXPECT_NE(after.at("model.layers.5.self_attn.q_norm.weight"), before.at("model.layers.5.self_attn.q_norm.weight"));
  EXPECT_EQ(after.at("model.layers.6.mlp.up_proj.weight"), before.at("model.layers.6.mlp.up_proj.weight"));
  EXPECT_NE(after.at("model.embed_tokens.weight"), before.at("model.embed_tokens.weight"));
  EXPECT_FALSE(exists("cache/drawing0_f2_te.safetensors"));

  const Finished used = generate({"drawing number 1", "-m", "pico", "--seed", "1", "--dit", "whole/x.safetensors",
                                  "--text-encoder", "whole/x-text_encoder.safetensors", "-o", "with.png"});
  EXPECT_EQ(used.status, 0) << used.err;
}

TEST_F(TrainParts, MistakesAreNamed) {
  const auto error = [&](std::vector<std::string> words) {
    const Finished done = train("out", std::move(words));
    EXPECT_EQ(done.status, 2) << done.err;
    return done.err;
  };
  EXPECT_THAT(error({"--train", "vea"}), HasSubstr("vae"));
  EXPECT_THAT(error({"--train", "vae", "--vae_crop", "20"}), HasSubstr("multiple of 16"));
  EXPECT_THAT(error({"--train", "vae", "--vae_crop", "128"}), HasSubstr("smaller than the square of 128"));
  EXPECT_THAT(error({"--train", "vae", "--freeze", "."}), HasSubstr("nothing to train"));
  EXPECT_THAT(error({"--train", "vae", "--gradient_checkpointing"}), HasSubstr("gradient_checkpointing"));
  EXPECT_THAT(error({"--train", "vae", "--ranks", "2"}), HasSubstr("one process"));
  EXPECT_THAT(error({"--vae_crop", "32"}), HasSubstr("--vae_crop needs --train vae"));
  EXPECT_THAT(error({"--text_encoder_lr", "1e-3"}), HasSubstr("text_encoder_lr"));
  const Finished large = train("out", {"--train", "transformer+text_encoder", "--max-ram", "0.1"});
  EXPECT_NE(large.status, 0);
  EXPECT_THAT(large.err, HasSubstr("the transformer and the text encoder needs at least"));
}

}  // namespace
}  // namespace flux2::test
