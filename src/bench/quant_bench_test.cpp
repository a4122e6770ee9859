#include "bench/quant_bench.h"

#include <gtest/gtest.h>

namespace flux2 {
namespace {

// A few layers wide enough that errors average as they do in a real model.
TEST(QuantBench, ErrorsStayInTheirBounds) {
  const auto rows = bench_quants({.device = "cpu", .threads = 2}, {.variant = "tiny", .shape = {.width = 64, .height = 64}});
  ASSERT_EQ(rows.size(), 5u);
  const double bounds[] = {1e-2, 2e-2, 2e-2, 1.5e-1, 6e-2};  // none, int8, q8_0, q4_0, fp8
  for (size_t i = 0; i < rows.size(); ++i) {
    const QuantBenchRow& row = rows[i];
    EXPECT_LE(row.error, bounds[i]) << name_of(row.quant);
    EXPECT_GT(row.weight_bytes, 0);
    if (row.quant == Quant::None) continue;
    EXPECT_GT(row.weights_error, 1e-4) << name_of(row.quant) << ": nothing was quantised";
    EXPECT_LE(row.error, 1.5 * row.weights_error + 5e-3) << name_of(row.quant);
    EXPECT_LT(row.weight_bytes, rows[0].weight_bytes);
  }
}

}  // namespace
}  // namespace flux2
