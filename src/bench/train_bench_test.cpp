#include "bench/train_bench.h"

#include <gtest/gtest.h>

namespace flux2 {
namespace {

TEST(TrainBench, StepsWithAndWithoutCheckpoint) {
  const Engine engine({.device = "cpu", .threads = 2});
  TrainBenchOptions options{.variant = "tiny", .shape = {.width = 64, .height = 96}, .rank = 4, .repeat = 2};
  const TrainBench plain = bench_train(engine, options);
  EXPECT_EQ(plain.adapters, 8 + 2 * 2);  // one double block and two single ones
  EXPECT_GT(plain.parameters, 0);
  EXPECT_GT(plain.loss, 0);
  EXPECT_GT(plain.gradient_norm, 0);
  EXPECT_LE(plain.fastest, plain.median);
  EXPECT_GT(plain.ceiling, 0);

  options.checkpoint = true;
  const TrainBench again = bench_train(engine, options);
  EXPECT_EQ(again.loss, plain.loss);
  EXPECT_EQ(again.gradient_norm, plain.gradient_norm);
  EXPECT_GT(again.flop, plain.flop);
  EXPECT_LT(again.memory.peak_device, plain.memory.peak_device);
}

TEST(TrainBench, RejectsInvalidOptions) {
  const Engine engine({.device = "cpu", .threads = 2});
  EXPECT_THROW(bench_train(engine, {.variant = "tiny", .shape = {.width = 100}}), Error);
  EXPECT_THROW(bench_train(engine, {.variant = "tiny", .shape = {.width = 64, .height = 64}, .rank = 0}), Error);
}

}  // namespace
}  // namespace flux2
