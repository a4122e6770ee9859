// Training whose gradients NCCL sums, from the command line, with the bundled model. Where there is no GPU, only the refusals
// run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/gpu_ranks.h"
#include "tests/support/program.h"
#include "tests/support/training_images.h"

namespace flux2::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class TrainNccl : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    write_bars(folder_ / "images", 4);
    write("data.json", R"({"general": {"resolution": 64, "caption_extension": ".txt", "batch_size": 1},
      "datasets": [{"image_directory": "images", "cache_directory": "cache"}]})");
  }

  Finished train(const std::string& out, std::vector<std::string> more,
                 const std::map<std::string, std::string>& environment = {}) const {
    std::vector<std::string> all = {"train", "data.json",         "-v", "--network_dim",   "2",    "--seed",
                                    "7",     "--output_dir",      out,  "--output_name",   "bars", "--profile",
                                    "exact", "--max_train_steps", "3",  "--learning_rate", "1e-3"};
    all.insert(all.end(), more.begin(), more.end());
    Start s = start(std::move(all));
    for (const auto& [name, value] : environment) s.environment[name] = value;
    return run(s);
  }
  std::map<std::string, std::vector<float>> values(const std::string& name) const { return trained_values(folder_ / name); }
};

TEST_F(TrainNccl, IsRefusedOnACpu) {
  const Finished done = train("out", {"--ddp_backend", "nccl"});
  EXPECT_NE(done.status, 0);
  EXPECT_THAT(done.err, HasSubstr("NCCL cannot sum the gradients: "));
  EXPECT_THAT(done.err, HasSubstr("--ddp-backend sockets"));
  EXPECT_FALSE(exists("out/bars.safetensors"));
}

TEST_F(TrainNccl, UnknownBackendsAreRefused) {
  const Finished done = train("out", {"--ddp_backend", "gloo"});
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.err, HasSubstr("sockets"));
}

TEST_F(TrainNccl, ProcessesOnACpuUseSocketsWithoutANotice) {
  const Finished done = train("out", {"--ranks", "2"});
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.err, Not(HasSubstr("gradients are summed")));
}

class TrainNcclOnGpu : public TrainNccl {
 protected:
  void SetUp() override {
    if (!gpu_is_there()) GTEST_SKIP() << "no GPU on this machine";
    if (const std::string problem = gpu_sums().problem; !problem.empty()) GTEST_SKIP() << problem;
    TrainNccl::SetUp();
  }
  void TearDown() override {
    if (!folder_.empty()) TrainNccl::TearDown();
  }
};

TEST_F(TrainNcclOnGpu, OneRankGivesTheBytesOfARunWithoutRanks) {
  const Finished plain = train("plain", {"--device", "cuda"}),
                 nccl = train("nccl", {"--device", "cuda", "--ddp_backend", "nccl"});
  ASSERT_EQ(plain.status, 0) << plain.err;
  ASSERT_EQ(nccl.status, 0) << nccl.err;
  EXPECT_THAT(nccl.err, HasSubstr("gradients are summed by NCCL 2."));
  EXPECT_EQ(values("plain/bars.safetensors"), values("nccl/bars.safetensors"));

  // The same under a launcher.
  const Finished launched =
      train("launched", {"--device", "cuda", "--ddp_backend", "nccl"}, {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}});
  ASSERT_EQ(launched.status, 0) << launched.err;
  EXPECT_THAT(launched.err, HasSubstr("gradients are summed by NCCL 2."));
  EXPECT_EQ(values("plain/bars.safetensors"), values("launched/bars.safetensors"));
}

TEST_F(TrainNcclOnGpu, TwoRanksOnOneGpuUseSocketsWithANotice) {
  const Finished both = train("two", {"--device", "cuda:0", "--ranks", "2"});
  ASSERT_EQ(both.status, 0) << both.err;
  EXPECT_THAT(both.err, HasSubstr("ranks 0 and 1 share one GPU"));
  const Finished refused = train("refused", {"--device", "cuda:0", "--ranks", "2", "--ddp_backend", "nccl"});
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.err, HasSubstr("NCCL cannot sum the gradients: ranks 0 and 1 share one GPU"));
}

}  // namespace
}  // namespace flux2::test
