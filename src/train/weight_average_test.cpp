#include "train/weight_average.h"

#include <gtest/gtest.h>

#include "engine/engine.h"

namespace flux2 {
namespace {

TEST(WeightAverage, EachStepMovesItTowardsTheWeights) {
  const Engine engine({.device = "cpu", .threads = 1, .profile = Profile::Exact});
  const auto stream = engine.device().open_stream();
  const auto of = [&](DType dtype, std::vector<double> values) {
    return Tensor::from<double>(*stream, dtype, {static_cast<int64_t>(values.size())}, values);
  };
  const Tensor a = of(DType::F32, {1, -2, 0.5}), b = of(DType::F32, {8});
  WeightAverage average({{"a", a}, {"b", b}}, 0.75, false);
  a.copy_from(of(DType::F32, {5, 2, 0.5}));
  b.copy_from(of(DType::F32, {0}));
  average.update(1);
  EXPECT_EQ(average.averages()[0].second.to_doubles(), (std::vector<double>{2, -1, 0.5}));
  EXPECT_EQ(average.averages()[1].second.to_doubles(), (std::vector<double>{6}));
  EXPECT_EQ(a.to_doubles(), (std::vector<double>{5, 2, 0.5})) << "the weights themselves stay";
  average.update(2);
  EXPECT_EQ(average.averages()[1].second.to_doubles(), (std::vector<double>{4.5}));
}

// In BF16 a step of a thousandth of the difference would be rounded away.
TEST(WeightAverage, WeightsInBf16HaveAveragesInF32) {
  const Engine engine({.device = "cpu", .threads = 1, .profile = Profile::Exact});
  const auto stream = engine.device().open_stream();
  const auto of = [&](DType dtype, std::vector<double> values) {
    return Tensor::from<double>(*stream, dtype, {static_cast<int64_t>(values.size())}, values);
  };
  const Tensor weight = of(DType::BF16, {1, 1, 1});
  WeightAverage average({{"w", weight}}, 0.999, false);
  weight.copy_from(of(DType::BF16, {2, 0.5, 1}));
  for (int step = 1; step <= 2; ++step) average.update(step);
  const auto expected = average.averages()[0].second.to_doubles();
  EXPECT_NEAR(expected[0], 1 + 1 - 0.999 * 0.999, 1e-6);
  EXPECT_NEAR(expected[1], 1 - 0.5 * (1 - 0.999 * 0.999), 1e-6);

  average.exchange();
  EXPECT_EQ(weight.to_doubles(), (std::vector<double>{1, 1, 1})) << "rounded";
  average.exchange();
  EXPECT_EQ(weight.to_doubles(), (std::vector<double>{2, 0.5, 1}));
  EXPECT_EQ(average.averages()[0].second.to_doubles(), expected) << "not rounded";

  // A state gives back what was saved, to the last bit.
  WeightAverage resumed({{"w", of(DType::BF16, {4, 4, 4})}}, 0.999, false);
  resumed.restore(average.averages());
  EXPECT_EQ(resumed.averages()[0].second.dtype(), DType::F32);
  EXPECT_EQ(resumed.averages()[0].second.to_doubles(), expected);
}

TEST(WeightAverage, WarmupForgetsTheStart) {
  const Engine engine({.device = "cpu", .threads = 1, .profile = Profile::Exact});
  const auto stream = engine.device().open_stream();
  WeightAverage average({{"a", Tensor::from<double>(*stream, DType::F32, {1}, std::vector<double>{0})}}, 0.999, true);
  EXPECT_DOUBLE_EQ(average.decay_at(1), 2.0 / 11);
  EXPECT_DOUBLE_EQ(average.decay_at(100000), 0.999);
}

}  // namespace
}  // namespace flux2
