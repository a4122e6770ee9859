#include "bench/language_bench.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

TEST(LanguageBench, CountsTheWeightsThatATokenReads) {
  const LanguageBenchResult plain =
      bench_language({.device = "cpu", .threads = 1}, {.variant = "tiny", .prompt = 8, .tokens = 3});
  EXPECT_GT(plain.prompt_seconds, 0);
  EXPECT_LE(plain.fastest, plain.median);
  EXPECT_GT(plain.weight_bytes, 0);
  const LanguageBenchResult packed =
      bench_language({.device = "cpu", .threads = 1, .quant = Quant::Int8}, {.variant = "tiny", .prompt = 8, .tokens = 3});
  EXPECT_LT(packed.weight_bytes, plain.weight_bytes);
  EXPECT_GT(packed.weight_bytes, plain.weight_bytes / 3);
}

TEST(LanguageBench, OneTokenIsRefused) {
  EXPECT_THROW(bench_language({.device = "cpu"}, {.variant = "tiny", .prompt = 8, .tokens = 1}), Error);
}

}  // namespace
}  // namespace flux2
