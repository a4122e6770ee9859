// Compares the gradient of every op case with central differences (in double, scalar kernels), and every device with the scalar
// kernels.
#include <gtest/gtest.h>

#include "autograd/checkpoint.h"
#include "autograd/grad.h"
#include "backend/plan/plan_device.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/linear.h"
#include "ops/lora.h"
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

// --- Every device against the scalar kernels in F32, from the same inputs. ---

std::vector<OpCase> affordable_cases() {
  std::vector<OpCase> cases;
  for (OpCase& c : op_cases()) {
    int64_t elements = 0;
    for (const Shape& s : c.inputs) elements += s.numel();
    if (c.has_gradient && elements < 1'000'000 && c.flop < 1e9) cases.push_back(std::move(c));
  }
  return cases;
}

// The gradients of Σ y · w on a stream, with inputs and w rounded to `rounding` and computed in `dtype`.
std::vector<std::vector<double>> gradients_of(const OpCase& c, Stream& stream, DType rounding, DType dtype) {
  const auto random = [&](const Shape& shape, uint64_t seed) { return random_tensor(stream, rounding, shape, seed).cast(dtype); };
  std::vector<Tensor> leaves;
  for (size_t i = 0; i < c.inputs.size(); ++i) leaves.push_back(parameter(random(c.inputs[i], 200 + i)));
  const Tensor y = c.run(leaves);
  const Gradients gradients = backward(sum(y * random(y.shape(), 300)));
  std::vector<std::vector<double>> result;
  for (const Tensor& leaf : leaves) result.push_back(gradients[leaf].to_doubles());
  return result;
}

class OpGradientAgreement : public testing::TestWithParam<OpCase> {};

TEST_P(OpGradientAgreement, WithScalarKernels) {
  const OpCase& c = GetParam();
  const auto scalar = scalar_device()->open_stream();
  for (DType dtype : {DType::F32, DType::BF16}) {
    const auto expected = gradients_of(c, *scalar, dtype, DType::F32);
    for (const NamedDevice& other : other_devices()) {
      if (other.device->is_host() && dtype == DType::BF16) continue;  // activations are F32 there
      const auto stream = other.device->open_stream();
      const auto actual = gradients_of(c, *stream, dtype, dtype);
      const bool rounds = dtype == DType::BF16 || (c.rounds_in_fast && other.name == "cpu fast");
      const double limit = rounds ? 2e-2 : 4 * tolerance(DType::F32, c.terms + 64);
      for (size_t i = 0; i < actual.size(); ++i) {
        const Difference d = difference(actual[i], expected[i]);
        // Inputs and weights are about 1. If a gradient nearly cancels, its tolerance is that of its terms.
        EXPECT_TRUE(d.relative <= limit || d.worst <= limit) << c.name << " input " << i << " " << name_of(dtype) << " on "
                                                             << other.name << ": " << d.str() << ", limit " << limit;
      }
      EXPECT_EQ(gradients_of(c, *stream, dtype, dtype), actual) << c.name << " on " << other.name << " differs from run to run";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, OpGradientAgreement, testing::ValuesIn(affordable_cases()), [](const auto& test) {
  std::string name = test.param.name;
  for (char& ch : name)
    if (!std::isalnum(static_cast<unsigned char>(ch))) ch = '_';
  return name;
});

// Only some inputs need a gradient: nothing is computed for the others.
TEST(Gradients, OnlyForTensorsThatNeedThem) {
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

// Using a released graph again is an error instead of a wrong result.
TEST(Gradients, ReleasedGraphsAreUsedOnce) {
  const auto stream = scalar_device()->open_stream();
  const Tensor a = parameter(random_tensor(*stream, DType::F64, {64, 64}, 1));
  const Tensor loss = sum(square(a * a));
  const size_t with_graph = stream->used_bytes();
  const auto kept = backward(loss)[a].to_doubles();
  EXPECT_EQ(backward(loss, GraphUse::Release)[a].to_doubles(), kept);
  EXPECT_LT(stream->used_bytes(), with_graph);
  EXPECT_THROW(backward(loss), Error);
}

// The input of a frozen layer is not kept for its gradient.
TEST(Gradients, FrozenWeightsKeepNothing) {
  const auto stream = scalar_device()->open_stream();
  const Tensor w = random_tensor(*stream, DType::F32, {16, 64}, 1);
  const Tensor x = parameter(random_tensor(*stream, DType::F32, {256, 64}, 2));
  const size_t before = stream->used_bytes();
  const Tensor y = linear(x + x, w);
  EXPECT_LT(stream->used_bytes() - before, static_cast<size_t>(x.bytes()));  // y alone, not the sum
}

// With Values::Unused an op records the gradients that it has anyway.
TEST(UnusedValues, GradientsAreTheSame) {
  const auto stream = scalar_device()->open_stream();
  for (DType dtype : {DType::F32, DType::BF16}) {
    const auto leaf = [&](const Shape& shape, uint32_t seed) { return parameter(random_tensor(*stream, dtype, shape, seed)); };
    const Tensor x = leaf({1, 3, 8}, 1), w = leaf({5, 8}, 2), bias = leaf({5}, 3), gate = leaf({1, 1, 5}, 4),
                 z = leaf({1, 3, 5}, 5);
    const Lora change{.down = leaf({2, 8}, 6), .up = leaf({5, 2}, 7), .scale = 0.5};
    const Tensor dy = random_tensor(*stream, dtype, {1, 3, 5}, 8);
    using Op = std::function<Tensor(Values)>;
    const std::vector<std::pair<Op, std::vector<Tensor>>> ops = {
        {[&](Values v) { return linear(x, w, bias, v); }, {x, w, bias}},
        {[&](Values v) { return lora_linear(x, w.detached(), {}, {change}, v); }, {x, change.down, change.up}},
        {[&](Values v) { return lora_linear(x, w, bias, {change}, v); }, {x, w, bias, change.down, change.up}},
        {[&](Values v) { return lora_linear(x, w.detached(), {}, {}, v); }, {x}},
        {[&](Values v) { return gated_add(z, gate, linear(x, w), v); }, {z, gate, x, w}}};
    for (size_t i = 0; i < ops.size(); ++i) {
      const auto gradients = [&](Values values) {
        const Tensor y = ops[i].first(values);
        EXPECT_EQ(y.shape(), dy.shape());
        const Gradients g = backward(std::span(&y, 1), std::span(&dy, 1));
        std::vector<std::vector<double>> all;
        for (const Tensor& leaf_of_op : ops[i].second) all.push_back(g[leaf_of_op].to_doubles());
        return all;
      };
      EXPECT_EQ(gradients(Values::Unused), gradients(Values::Needed)) << "op " << i << " " << name_of(dtype);
    }
  }
}

// A product with a quantised weight unpacks it on a GPU, which shows whether there was a product.
TEST(UnusedValues, AreNotComputed) {
  const auto stream = open_plan_gpu({.total = int64_t{1} << 30, .available = int64_t{1} << 30})->open_stream();
  const Tensor x = parameter(Tensor::empty(*stream, DType::BF16, {4, 256})), w = Tensor::host_empty(DType::Q8_0, {512, 256});
  const Lora change{.down = parameter(Tensor::empty(*stream, DType::F32, {2, 256})),
                    .up = parameter(Tensor::empty(*stream, DType::F32, {512, 2}))};
  constexpr size_t kUnpacked = 512 * 256 * 2;
  const auto work = [&](const std::function<Tensor()>& op) {
    restart_peak(*stream);
    const size_t before = stream->used_bytes();
    const Tensor y = op();
    return restart_peak(*stream) - before;
  };
  EXPECT_GE(work([&] { return linear(x, w); }), kUnpacked);
  EXPECT_LT(work([&] { return linear(x, w, {}, Values::Unused); }), kUnpacked);
  EXPECT_GE(work([&] { return lora_linear(x, w, {}, {change}); }), kUnpacked);
  EXPECT_LT(work([&] { return lora_linear(x, w, {}, {change}, Values::Unused); }), kUnpacked);
}

// Releasing a chain of many thousand ops does not overflow the stack.
TEST(Gradients, LongChains) {
  const auto stream = scalar_device()->open_stream();
  const Tensor a = parameter(random_tensor(*stream, DType::F64, {2}, 1));
  Tensor y = a;
  for (int i = 0; i < 50000; ++i) y = affine(y, 1.0, 0.0);
  const Gradients g = backward(sum(y));
  EXPECT_EQ(g[a].to_doubles(), (std::vector<double>{1.0, 1.0}));
}

// Two outputs, captured weights, inputs without gradients: the same bits as without checkpoint().
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

// An op may add its gradient to what has arrived already, instead of leaving that to backward().
TEST(Gradients, ASumThatAnOpTakesIsPartOfItsOwnGradient) {
  const auto stream = scalar_device()->open_stream();
  const Tensor x = parameter(Tensor::from<double>(*stream, DType::F64, {3}, std::vector<double>{1, -2, 5}));
  bool took = false;
  const auto tripled = [&](const Tensor& in, bool expects_sum) {
    return record("triple", 3.0 * in.detached(), {in}, [&took, expects_sum](const Tensor& dy, GradSink& sink) {
      const Tensor own = 3.0 * dy.detached(), before = sink.take_sum(0);
      EXPECT_EQ(before.defined(), expects_sum);
      EXPECT_FALSE(sink.take_sum(0).defined());  // it is handed out once
      took = took || before.defined();
      sink.add(0, before.defined() ? before + own : own);
    });
  };
  const Tensor first = tripled(x, true), squares = square(x), last = tripled(x, false);
  const Gradients gradients = backward(sum(first + squares + last));
  EXPECT_TRUE(took);
  EXPECT_EQ(gradients[x].to_doubles(), (std::vector<double>{8, 2, 16}));
  // A leaf whose gradient is given away at once.
  std::vector<double> taken;
  const Tensor earlier = tripled(x, true), later = square(x), again = sum(earlier + later), one = Tensor::like(again);
  one.fill(1.0);
  backward(std::vector<Tensor>{again}, std::vector<Tensor>{one}, GraphUse::Release, [&](const GradNode&, const Tensor& gradient) {
    taken = gradient.to_doubles();
    return true;
  });
  EXPECT_EQ(taken, (std::vector<double>{5, -1, 13}));
}

}  // namespace
}  // namespace flux2
