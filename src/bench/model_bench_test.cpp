#include "bench/model_bench.h"

#include <gtest/gtest.h>

#include "engine/model_cost.h"
#include "hub/variants.h"

namespace flux2 {
namespace {

TEST(ModelCost, MatchesTheSpecification) {
  // TFLOP; the figures of the specification include the text projection.
  const double txt_in = 0.024159;
  EXPECT_NEAR(step_flop(klein_4b_config(), 512, 1024) * 1e-12 + txt_in, 10.173, 2e-3);
  EXPECT_NEAR(step_flop(klein_4b_config(), 512, 4096) * 1e-12 + txt_in, 34.820, 2e-3);
  EXPECT_NEAR(step_flop(klein_9b_config(), 512, 4096) * 1e-12, 75.51, 0.1);
  EXPECT_NEAR(lora_step_flop(klein_4b_config(), 512, 4096, false) * 1e-12, 79.4, 0.1);
  EXPECT_NEAR(lora_step_flop(klein_4b_config(), 512, 4096, true) * 1e-12, 114.2, 0.1);
  const Vae vae{VaeConfig{}};
  EXPECT_NEAR(decode_flop(vae, 512, 512) * 1e-12, 2.516, 2e-3);
  EXPECT_NEAR(decode_flop(vae, 1024, 1024) * 1e-12, 10.475, 5e-3);
  EXPECT_NEAR(encode_flop(vae, 512, 512) * 1e-12, 1.119, 2e-3);
  EXPECT_NEAR(encode_flop(vae, 1024, 1024) * 1e-12, 4.888, 5e-3);
}

TEST(ModelBench, TimesEveryNetworkOfASmallModel) {
  const Engine engine({.device = "cpu", .threads = 2});
  const ModelBench bench =
      bench_model(engine, {.variant = "tiny", .width = 64, .height = 96, .batch = 2, .references = 1, .repeat = 3});
  ASSERT_EQ(bench.rows.size(), 4u);
  for (const ModelBenchRow& row : bench.rows) {
    EXPECT_GT(row.fastest, 0) << row.kernel;
    EXPECT_LE(row.fastest, row.median) << row.kernel;
    EXPECT_GT(row.flop, 0) << row.kernel;
  }
  EXPECT_GT(bench.ceiling, 0);
}

TEST(ModelBench, RefusesSizesThatAreNotOnTheGrid) {
  const Engine engine({.device = "cpu", .threads = 2});
  EXPECT_THROW(bench_model(engine, {.variant = "tiny", .width = 100}), Error);
  EXPECT_THROW(bench_model(engine, {.variant = "no such model", .width = 64}), Error);
}

}  // namespace
}  // namespace flux2
