// Every op case's gradient against central differences, in double on the scalar kernels.
#include <gtest/gtest.h>

#include "autograd/checkpoint.h"
#include "autograd/grad.h"
#include "ops/arithmetic.h"
#include "tests/support/devices.h"
#include "tests/support/op_cases.h"

namespace flux2 {
namespace {

std::vector<OpCase> differentiable_cases() {
  std::vector<OpCase> cases;
  for (OpCase& c : op_cases())
    if (c.differentiable) cases.push_back(std::move(c));
  return cases;
}

class OpGradient : public testing::TestWithParam<OpCase> {};

// The loss is Σ y · w with fixed random w, so that every output counts differently.
TEST_P(OpGradient, MatchesFiniteDifferences) {
  const OpCase& c = GetParam();
  const auto device = scalar_device();
  const auto stream = device->open_stream();
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) inputs.push_back(random_tensor(*stream, DType::F64, c.inputs[i], 200 + i));
  const Tensor plain = c.run(inputs);
  const Tensor weights = random_tensor(*stream, DType::F64, plain.shape(), 300);
  const auto loss = [&](const std::vector<Tensor>& x) { return sum(c.run(x) * weights); };

  std::vector<Tensor> leaves;
  for (const Tensor& x : inputs) leaves.push_back(parameter(x));
  const Tensor with_graph = loss(leaves);
  EXPECT_NEAR(with_graph.to_doubles()[0], loss(inputs).to_doubles()[0], 1e-12);  // recording changes no value
  const Gradients gradients = backward(with_graph);

  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<double> values = inputs[i].to_doubles(), expected;
    for (size_t j = 0; j < values.size(); ++j) {
      const auto at = [&](double offset) {
        std::vector<double> moved = values;
        moved[j] += offset;
        std::vector<Tensor> x = inputs;
        x[i] = Tensor::from<double>(*stream, DType::F64, inputs[i].shape(), moved);
        return loss(x).to_doubles()[0];
      };
      const double h = 1e-5;
      expected.push_back((8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h));
    }
    const Difference d = difference(gradients[leaves[i]].to_doubles(), expected);
    EXPECT_LE(d.relative, 1e-7) << c.name << " input " << i << ": " << d.str();
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, OpGradient, testing::ValuesIn(differentiable_cases()), [](const auto& test) {
  std::string name = test.param.name;
  for (char& ch : name)
    if (!std::isalnum(static_cast<unsigned char>(ch))) ch = '_';
  return name;
});

// Gradients that only some inputs want: nothing is computed for the others.
TEST(Gradients, OnlyForWhatWantsThem) {
  const auto stream = scalar_device()->open_stream();
  const Tensor a = parameter(random_tensor(*stream, DType::F64, {3, 4}, 1)), b = random_tensor(*stream, DType::F64, {3, 4}, 2);
  const Gradients g = backward(sum(a * b));
  EXPECT_EQ(g.by_node.size(), 1u);
  EXPECT_LE(difference(g[a], b).relative, 1e-15);
  EXPECT_FALSE(g.contains(b));
  EXPECT_THROW(g[b], Error);
  EXPECT_THROW(backward(a), Error);
}

// One leaf used in several places gets the sum.
TEST(Gradients, AddUp) {
  const auto stream = scalar_device()->open_stream();
  const Tensor a = parameter(random_tensor(*stream, DType::F64, {5}, 1));
  const Tensor y = a * a + a + a * a;
  const Gradients g = backward(sum(y));
  EXPECT_LE(difference(g[a], 4.0 * a.detached() + (1.0 + 0.0 * a.detached())).relative, 1e-15);
}

// A chain of many thousand ops is taken apart without exhausting the stack.
TEST(Gradients, LongChains) {
  const auto stream = scalar_device()->open_stream();
  const Tensor a = parameter(random_tensor(*stream, DType::F64, {2}, 1));
  Tensor y = a;
  for (int i = 0; i < 50000; ++i) y = affine(y, 1.0, 0.0);
  const Gradients g = backward(sum(y));
  EXPECT_EQ(g[a].to_doubles(), (std::vector<double>{1.0, 1.0}));
}

// Two outputs, captured weights, inputs that want nothing: the same bits as without checkpoint.
TEST(Checkpoint, SameBits) {
  const auto stream = scalar_device()->open_stream();
  for (DType dtype : {DType::F32, DType::BF16}) {
    const Tensor x = parameter(random_tensor(*stream, dtype, {3, 8}, 1)), z = random_tensor(*stream, dtype, {3, 8}, 2);
    const Tensor w = parameter(random_tensor(*stream, dtype, {8}, 3));
    const Block block = [w](const std::vector<Tensor>& in) {
      const Tensor y = in[0] * w + in[1];
      return std::vector<Tensor>{y * y, y + w};
    };
    const auto gradients = [&](bool checkpointed) {
      const auto y = checkpointed ? checkpoint(block, {x, z}) : block({x, z});
      const Gradients g = backward(sum(y[0] * y[1]));
      return std::pair{g[x].to_doubles(), g[w].to_doubles()};
    };
    EXPECT_EQ(gradients(true), gradients(false));
  }
}

}  // namespace
}  // namespace flux2
