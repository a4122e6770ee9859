// Every op case with axes of extent 0 (the rule is in ops/empty.h): the op returns or throws, never crashes, and its gradient
// can be taken.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "autograd/grad.h"
#include "base/error.h"
#include "ops/arithmetic.h"
#include "tests/support/devices.h"
#include "tests/support/op_cases.h"

namespace flux2 {
namespace {

// The shapes of a case with some extents replaced by 0: one axis of one input, or every axis of one extent in all inputs, which
// is what an empty batch or an empty sequence looks like.
std::vector<std::vector<Shape>> emptied(const OpCase& c) {
  std::vector<std::vector<Shape>> variants;
  std::set<int64_t> extents;
  for (size_t i = 0; i < c.inputs.size(); ++i)
    for (int axis = 0; axis < c.inputs[i].rank(); ++axis) {
      variants.push_back(c.inputs);
      variants.back()[i] = c.inputs[i].with(axis, 0);
      extents.insert(c.inputs[i][axis]);
    }
  for (const int64_t extent : extents) {
    std::vector<Shape>& all = variants.emplace_back(c.inputs);
    for (Shape& shape : all)
      for (int axis = 0; axis < shape.rank(); ++axis)
        if (shape[axis] == extent) shape[axis] = 0;
  }
  return variants;
}

struct Outcome {
  bool refused = false;
  std::vector<double> values;
  Shape shape;
};

Outcome run_on(Device& device, const OpCase& c, const std::vector<Shape>& shapes, bool with_gradient) {
  const auto stream = device.open_stream();
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Tensor x = random_tensor(*stream, DType::F32, shapes[i], 100 + i);
    inputs.push_back(with_gradient ? parameter(x) : x);
  }
  Outcome outcome;
  try {
    const Tensor y = c.run(inputs);
    outcome.shape = y.shape();
    outcome.values = y.to_doubles();
    if (!with_gradient) return outcome;
    const Gradients gradients = backward(sum(y));
    for (const Tensor& x : inputs) EXPECT_TRUE(!gradients.contains(x) || gradients[x].shape() == x.shape()) << c.name;
  } catch (const Error&) {
    outcome.refused = true;
  }
  return outcome;
}

class OpEmpty : public testing::TestWithParam<OpCase> {};

TEST_P(OpEmpty, IsReturnedOrRefused) {
  const OpCase& c = GetParam();
  const auto scalar = scalar_device();
  for (const std::vector<Shape>& shapes : emptied(c)) {
    std::string name = c.name;
    for (const Shape& shape : shapes) name += " " + shape.str();
    const Outcome expected = run_on(*scalar, c, shapes, false);
    for (const double v : expected.values) EXPECT_TRUE(std::isfinite(v)) << name << ": a value made from nothing";
    if (c.differentiable) run_on(*scalar, c, shapes, true);
    for (const NamedDevice& other : other_devices()) {
      const Outcome outcome = run_on(*other.device, c, shapes, false);
      EXPECT_EQ(outcome.refused, expected.refused) << name << " on " << other.name;
      EXPECT_EQ(outcome.shape, expected.shape) << name << " on " << other.name;
      if (c.differentiable) run_on(*other.device, c, shapes, true);
    }
  }
}

std::vector<OpCase> small_cases() {
  std::vector<OpCase> cases;
  for (OpCase& c : op_cases())
    if (!c.large) cases.push_back(std::move(c));
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, OpEmpty, testing::ValuesIn(small_cases()), [](const auto& test) {
  std::string name = test.param.name;
  for (char& ch : name)
    if (!std::isalnum(static_cast<unsigned char>(ch))) ch = '_';
  return name;
});

}  // namespace
}  // namespace flux2
