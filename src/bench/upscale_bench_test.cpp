#include "bench/upscale_bench.h"

#include <gtest/gtest.h>

namespace flux2 {
namespace {

TEST(UpscaleBench, CountsTheOperationsOfTheEquations) {
  UpscaleBenchOptions options;
  options.network = {.scale = 2, .blocks = 1, .width = 8, .growth = 4};
  options.width = 32, options.height = 24, options.repeats = 1;
  const UpscaleBenchResult r = bench_upscale({.device = "cpu", .threads = 1}, options);
  EXPECT_GT(r.seconds, 0);
  EXPECT_LE(r.fastest, r.slowest);
  EXPECT_GT(r.peak_bytes, 0);
  const double dense = 4 * (8 + 12 + 16 + 20) + 8 * 24, tail = 4 * 64 + 16 * 64 * 2 + 16 * 3 * 8;
  EXPECT_DOUBLE_EQ(r.flop, 2.0 * 9 * (12 * 8 + 3 * dense + 64 + tail) * 16 * 12);
}

}  // namespace
}  // namespace flux2
