// Options of training that save memory, from the command line with the bundled model: none of them changes the result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/support/program.h"
#include "tests/support/training_images.h"
#include "weights/weight_source.h"

namespace flux2::test {
namespace {

using testing::HasSubstr;

class TrainMemory : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    write_training_images(folder_ / "images", "waves", 3, [](int i, int x, int y, uint8_t* p) {
      for (int c = 0; c < 3; ++c) p[c] = static_cast<uint8_t>((x * (i + 1) + 3 * y + 40 * c) % 256);
    });
    write("data.json", R"({"general": {"resolution": 64, "caption_extension": ".txt", "batch_size": 1},
      "datasets": [{"image_directory": "images", "cache_directory": "cache"}]})");
  }

  Finished train(const std::string& out, const std::vector<std::string>& more, const std::string& command = "train") const {
    std::vector<std::string> all = {"data.json", "--learning_rate", "1e-3", "--seed",        "7",     "--max_train_steps",
                                    "3",         "--output_dir",    out,    "--output_name", "waves", "--profile",
                                    "exact"};
    all.insert(all.begin(), command);
    if (command == "plan") all.insert(all.begin() + 1, "train");
    all.insert(all.end(), more.begin(), more.end());
    return flux2(all);
  }
  std::map<std::string, std::vector<float>> values(const std::string& out) const {
    return trained_values(folder_ / out / "waves.safetensors");
  }
};

TEST_F(TrainMemory, NoOptionChangesTheAdapter) {
  ASSERT_EQ(train("plain", {}).status, 0);
  const auto expected = values("plain");
  const std::vector<std::vector<std::string>> cases = {{"--gradient_checkpointing"},
                                                       {"--activation_policy", "p2"},
                                                       {"--activation_policy", "auto"},
                                                       {"--gradient_checkpointing", "--gradient_checkpointing_cpu_offload"},
                                                       {"--gradient_checkpointing", "--blocks_to_swap", "1"},
                                                       {"--gradient_checkpointing", "--max-ram", "2"}};
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::string out = fmt::format("out{}", i);
    const Finished done = train(out, cases[i]);
    ASSERT_EQ(done.status, 0) << cases[i].back() << ": " << done.err;
    EXPECT_EQ(values(out), expected) << cases[i].back();
  }
}

TEST_F(TrainMemory, AFusedStepGivesTheSameModel) {
  std::vector<std::string> whole = {"--full",
                                    "--optimizer_type",
                                    "adafactor",
                                    "--optimizer_args",
                                    "relative_step=False",
                                    "scale_parameter=False",
                                    "--max_grad_norm",
                                    "0"};
  ASSERT_EQ(train("plain", whole).status, 0);
  whole.insert(whole.end(), {"--fused_backward_pass", "--gradient_checkpointing"});
  const Finished fused = train("fused", whole);
  ASSERT_EQ(fused.status, 0) << fused.err;
  EXPECT_EQ(values("fused"), values("plain"));
}

TEST_F(TrainMemory, ImpossibleCombinationsAreRefused) {
  const auto refused = [&](const std::vector<std::string>& options, const std::string& text) {
    const Finished done = train("never", options);
    EXPECT_EQ(done.status, 2) << done.err;
    EXPECT_THAT(done.err, HasSubstr(text));
    EXPECT_FALSE(exists("never"));
  };
  refused({"--blocks_to_swap", "1"}, "computed again");
  refused({"--blocks_to_swap", "99", "--gradient_checkpointing"}, "too large");
  refused({"--full", "--blocks_to_swap", "1", "--gradient_checkpointing"}, "weights change");
  refused({"--fused_backward_pass"}, "needs --full");
  refused({"--full", "--fused_backward_pass", "--gradient_accumulation_steps", "2"}, "gradient_accumulation_steps");
  refused({"--full", "--fused_backward_pass", "--optimizer_type", "prodigy"}, "Prodigy");
  refused({"--gradient_checkpointing_cpu_offload"}, "needs --gradient_checkpointing");
  refused({"--activation_policy", "p7"}, "p7");
}

TEST_F(TrainMemory, TheForecastLeavesOutImagesOfValidation) {
  write_training_images(folder_ / "held", "held", 2, [](int i, int x, int y, uint8_t* p) {
    for (int c = 0; c < 3; ++c) p[c] = static_cast<uint8_t>((x + y * (i + 2) + 40 * c) % 256);
  });
  write("data.json", R"({"general": {"resolution": 64, "caption_extension": ".txt", "batch_size": 1},
    "datasets": [{"image_directory": "images", "cache_directory": "cache"},
                 {"image_directory": "held", "cache_directory": "held_cache", "resolution": 128, "validation": true}]})");
  const Finished plan = train("plan", {"--network_dim", "2", "--max_train_epochs", "2", "--json"}, "plan");
  ASSERT_EQ(plan.status, 0) << plan.err;
  const Json forecast = Json::parse(plan.out);
  EXPECT_EQ(forecast["images"], 3) << plan.out;
  EXPECT_EQ(forecast["steps"], 6) << plan.out;
  EXPECT_EQ(forecast["width"], 64) << plan.out;
}

// The forecast of memory is near what a run takes, apart from what a process of this size needs anyway (pools alone are compared
// in src/train/memory_test.cpp). Caches are made before, because encoders are not part of it.
TEST_F(TrainMemory, TheForecastIsNearTheRun) {
  const std::vector<std::string> options = {"--network_dim", "8", "--require_cache"};
  ASSERT_EQ(train("first", {"--network_dim", "8"}).status, 0);
  const Finished plan = train("plan", {"--network_dim", "8", "--json"}, "plan");
  ASSERT_EQ(plan.status, 0) << plan.err;
  const Json forecast = Json::parse(plan.out);
  ASSERT_EQ(train("second", options).status, 0);
  double measured = 0;
  std::istringstream lines(bytes("second/waves.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json event = Json::parse(line);
    if (event.contains("host_gib") && event["host_gib"].is_number()) measured = event["host_gib"].get<double>() * (1 << 30);
  }
  ASSERT_GT(measured, 0);
  constexpr double kMebibyte = 1 << 20;
  EXPECT_NEAR(forecast["peak_bytes"].get<double>() / kMebibyte, measured / kMebibyte, 32 + 0.08 * measured / kMebibyte);
}

}  // namespace
}  // namespace flux2::test
