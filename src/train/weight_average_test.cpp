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

TEST(WeightAverage, WarmupForgetsTheStart) {
  const Engine engine({.device = "cpu", .threads = 1, .profile = Profile::Exact});
  const auto stream = engine.device().open_stream();
  WeightAverage average({{"a", Tensor::from<double>(*stream, DType::F32, {1}, std::vector<double>{0})}}, 0.999, true);
  EXPECT_DOUBLE_EQ(average.decay_at(1), 2.0 / 11);
  EXPECT_DOUBLE_EQ(average.decay_at(100000), 0.999);
}

}  // namespace
}  // namespace flux2
