#include "server/jobs/metric_buckets.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace flux2 {
namespace {

std::vector<RunMetric> steps(int64_t first, int64_t last) {
  std::vector<RunMetric> list;
  for (int64_t s = first; s <= last; ++s) list.push_back({.step = s, .loss = static_cast<double>(s), .lr = 1e-4});
  return list;
}

TEST(MetricBuckets, FewStepsAreGivenAsTheyAre) {
  const auto metrics = steps(1, 3);
  const Json answer = metric_buckets(metrics, {.from = 0, .to = 3, .max = 2000}, {"loss", "lr"});
  EXPECT_EQ(answer["step"], Json({1, 2, 3}));
  EXPECT_EQ(answer["loss"], Json({1.0, 2.0, 3.0}));
  EXPECT_EQ(answer["loss_min"], answer["loss"]);
  EXPECT_EQ(answer["lr_max"], Json({1e-4, 1e-4, 1e-4}));
  EXPECT_FALSE(answer.contains("grad_norm"));
}

TEST(MetricBuckets, ManyStepsShareBucketsOfEqualWidth) {
  const auto metrics = steps(1, 1000);
  const Json answer = metric_buckets(metrics, {.from = 1, .to = 1000, .max = 10}, {"loss"});
  ASSERT_EQ(answer["step"].size(), 10u);
  EXPECT_EQ(answer["step"][0], 100);
  EXPECT_EQ(answer["loss"][0], 50.5);
  EXPECT_EQ(answer["loss_min"][0], 1.0);
  EXPECT_EQ(answer["loss_max"][0], 100.0);
  EXPECT_EQ(answer["step"][9], 1000);
  for (const int64_t max : {1, 3, 7, 999})
    EXPECT_LE(metric_buckets(metrics, {.from = 1, .to = 1000, .max = max}, {"loss"})["step"].size(), static_cast<size_t>(max));
}

TEST(MetricBuckets, EmptyBucketsAreLeftOutAndUnknownNumbersAreNull) {
  std::vector<RunMetric> metrics = steps(1, 2);
  metrics.push_back({.step = 100, .loss = std::nan("")});
  const Json answer = metric_buckets(metrics, {.from = 1, .to = 100, .max = 10}, {"loss"});
  EXPECT_EQ(answer["step"], Json({2, 100}));
  EXPECT_EQ(answer["loss"], Json({1.5, nullptr}));
  EXPECT_EQ(metric_buckets({}, {.from = 0, .to = 0, .max = 5}, {"loss"})["step"], Json::array());
  EXPECT_THROW(metric_buckets(metrics, {.from = 1, .to = 100, .max = 10}, {"los"}), Error);
}

}  // namespace
}  // namespace flux2
