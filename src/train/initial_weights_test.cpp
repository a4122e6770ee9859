#include "train/initial_weights.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/engine.h"

namespace flux2 {
namespace {

struct ValueSpread {
  double mean = 0, deviation = 0, largest = 0;
};

ValueSpread spread_of(const Tensor& t) {
  ValueSpread s;
  const std::vector<float> values = t.to_floats();
  for (const float v : values) {
    s.mean += v / static_cast<double>(values.size());
    s.deviation += double{v} * v / static_cast<double>(values.size());
    s.largest = std::max(s.largest, std::abs(double{v}));
  }
  s.deviation = std::sqrt(s.deviation);
  return s;
}

TEST(InitialWeights, FollowTheKindOfTheParameter) {
  const Engine engine({.device = "cpu", .threads = 1, .profile = Profile::Exact});
  const auto stream = engine.device().open_stream();
  std::vector<TrainedParameter> parameters;
  const auto add = [&](const std::string& name, const Shape& shape) {
    Tensor t = Tensor::empty(*stream, DType::F32, shape);
    t.fill(5);
    parameters.push_back({.name = name, .leaf = t});
    return t;
  };
  const Tensor matrix = add("single_blocks.0.linear1.weight", {300, 100}), conv = add("decoder.conv_in.weight", {64, 3, 3, 32}),
               modulation = add("single_stream_modulation.lin.weight", {100, 200}),
               last = add("final_layer.linear.weight", {64, 64}), scale = add("single_blocks.0.norm.key_norm.scale", {64}),
               bias = add("decoder.conv_in.bias", {64}), words = add("text_encoder.model.embed_tokens.weight", {200, 100});
  initialise(parameters, 3);
  const double matrix_bound = std::sqrt(6.0 / 400), conv_bound = std::sqrt(6.0 / (9 * (64 + 32)));
  EXPECT_LE(spread_of(matrix).largest, matrix_bound);
  EXPECT_NEAR(spread_of(matrix).deviation, matrix_bound / std::sqrt(3), 0.02 * matrix_bound);
  EXPECT_NEAR(spread_of(matrix).mean, 0, 0.02 * matrix_bound);
  EXPECT_NEAR(spread_of(conv).deviation, conv_bound / std::sqrt(3), 0.02 * conv_bound);
  EXPECT_NEAR(spread_of(modulation).deviation, 0.01, 0.0005);
  EXPECT_NEAR(spread_of(words).deviation, 0.02, 0.001);
  EXPECT_EQ(spread_of(last).largest, 0);
  EXPECT_EQ(spread_of(bias).largest, 0);
  EXPECT_EQ(scale.to_floats(), std::vector<float>(64, 1));
  const std::vector<float> first = matrix.to_floats();
  initialise(parameters, 4);
  EXPECT_NE(matrix.to_floats(), first);
  initialise(parameters, 3);
  EXPECT_EQ(matrix.to_floats(), first);
}

}  // namespace
}  // namespace flux2
