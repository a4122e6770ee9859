// The last block computes only what is read behind it. Taps look at whole blocks, so with them it computes everything: both must
// give the same velocity.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/grad.h"
#include "backend/cpu/cpu_device.h"
#include "model/block_layers.h"
#include "nn/linear.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/embedding.h"
#include "ops/loss.h"

namespace flux2 {
namespace {

constexpr int64_t kText = 4, kTarget = 6, kReferences = 3;

class LastBlock : public testing::Test {
 protected:
  explicit LastBlock() {
    config.hidden = 256;
    config.double_blocks = config.single_blocks = 2;
    config.text_width = 384;
    config.guidance = false;
    network.emplace(config);
    network->visit([&](const Parameter& p) {
      const bool is_vector = p.kind == ParameterKind::Vector;
      p.tensor = random(p.shape, is_vector ? 1 : 1.5 / std::sqrt(static_cast<double>(p.shape[-1])), is_vector ? 1 : 0);
    });
    std::vector<TokenPosition> positions;
    for (int32_t i = 0; i < kText + kTarget + kReferences; ++i) positions.push_back({.h = i / 3, .w = i % 3, .l = i});
    rope = flux2_rope(*stream, positions);
  }

  Tensor random(const Shape& shape, double scale = 1, double shift = 0) {
    std::vector<double> values(static_cast<size_t>(shape.numel()));
    for (double& v : values) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      v = shift + scale * (static_cast<double>(state >> 11) * 0x1p-52 - 1);
    }
    return Tensor::from<double>(*stream, DType::F64, shape, values);
  }

  Flux2Transformer::Inputs inputs(int64_t batch) {
    return {.x = random({batch, kTarget + kReferences, 128}),
            .vec = random({batch, config.hidden}),
            .txt = random({batch, kText, config.hidden}),
            .rope = rope,
            .keep = kTarget,
            .taps = {}};
  }

  // How many rows the last block's second product has, and the velocity, which must not depend on the taps.
  void expect_same(Flux2Transformer::Inputs in) {
    const auto cut = (*network)(in).to_doubles();
    int64_t seen = 0;
    in.taps = [&](const std::string& name, const Tensor& x) {
      if (name == "single_blocks.1") seen = x.dim(1);
    };
    const auto whole = (*network)(in).to_doubles();
    EXPECT_EQ(seen, kText + in.x.dim(1));
    ASSERT_EQ(cut.size(), whole.size());
    for (size_t i = 0; i < cut.size(); ++i) ASSERT_NEAR(cut[i], whole[i], 1e-12) << i;
  }

  uint64_t state = 1;
  std::shared_ptr<Stream> stream = open_cpu({.threads = 2, .profile = Profile::Exact})->open_stream();
  Flux2Config config;
  std::optional<Flux2Transformer> network;
  Rope rope;
};

TEST_F(LastBlock, GivesTheSameVelocity) {
  for (const int64_t batch : {1, 2}) expect_same(inputs(batch));
}

TEST_F(LastBlock, TakesItsPartOfAdapters) {
  for (const auto& [path, layer] : block_layers(*network))
    layer->adapters = {{.down = random({3, layer->in}, 0.1), .up = random({layer->out, 3}, 0.1), .scale = 0.5},
                       {.down = random({2, layer->in}, 0.1), .up = random({layer->out, 2}, 0.1)}};
  expect_same(inputs(2));
}

TEST_F(LastBlock, SeesKeptReferences) {
  Flux2Transformer::Inputs in = inputs(2);
  const Rope all = rope;
  const auto part = [&](int64_t first, int64_t count) {
    return Rope{all.cosine.narrowed(0, first, count), all.sine.narrowed(0, first, count), all.pairs};
  };
  const ReferenceKeys keys =
      network->reference_keys(in.x.narrowed(1, kTarget, kReferences).contiguous(), in.vec, part(kText + kTarget, kReferences));
  in.x = in.x.narrowed(1, 0, kTarget).contiguous();
  in.references = &keys;
  rope = part(0, kText + kTarget);
  expect_same(in);
}

// Tokens of two areas, of which each sees itself and one half of the text; everything sees the references.
TEST_F(LastBlock, FollowsGroups) {
  TokenGroups groups;
  const std::vector<int32_t> order = {0, 2, 4, 1, 3, 5, 6, 7, 8}, back = {0, 3, 1, 4, 2, 5};
  groups.pieces = {{true, 0, 2}, {false, 0, 3}, {true, 2, 2}, {false, 3, 3}, {false, 6, 3}};
  const RowClasses classes{.of_row = {0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2},
                           .sees = {{true, false, true}, {false, true, true}, {true, true, true}}};
  groups.all = group_rows(*stream, classes, 13);
  const std::vector<int32_t> target = {2, 3, 4, 7, 8, 9}, text = {0, 1, 5, 6}, image = {2, 3, 4, 7, 8, 9, 10, 11, 12};
  const auto ids = [&](const std::vector<int32_t>& values) {
    return Tensor::from<int32_t>(*stream, DType::I32, {static_cast<int64_t>(values.size())}, values);
  };
  groups.last = group_rows(*stream, classes, target);
  groups.order = ids(order), groups.back = ids(back);
  groups.text = ids(text), groups.image = ids(image), groups.target = ids(target);
  groups.rope = rope;
  groups.target_rope = {embedding(groups.target, rope.cosine, DType::F32), embedding(groups.target, rope.sine, DType::F32),
                        rope.pairs};
  for (const int64_t batch : {1, 2}) {
    Flux2Transformer::Inputs in = inputs(batch);
    in.groups = &groups;
    expect_same(in);
  }
}

// Trained alone, its adapters get the gradient that they get where it computes everything.
TEST_F(LastBlock, GivesTheSameGradient) {
  Linear& layer = network->single_blocks.back().in;
  Lora lora{.down = parameter(random({3, layer.in}, 0.1)), .up = parameter(random({layer.out, 3}, 0.1))};
  layer.adapters = {lora};
  Flux2Transformer::Inputs in = inputs(2);
  const auto gradients = [&] {
    const Gradients g = backward(mean(square((*network)(in))));
    auto all = g[lora.down].to_doubles();
    const auto up = g[lora.up].to_doubles();
    all.insert(all.end(), up.begin(), up.end());
    return all;
  };
  const auto cut = gradients();
  in.taps = [](const std::string&, const Tensor&) {};
  const auto whole = gradients();
  ASSERT_EQ(cut.size(), whole.size());
  for (size_t i = 0; i < cut.size(); ++i) ASSERT_NEAR(cut[i], whole[i], 1e-13) << i;
}

TEST(LinearOutputs, AreThoseOfTheWholeLayer) {
  const auto stream = open_cpu({.threads = 1})->open_stream();
  const auto numbers = [&](const Shape& shape, float step) {
    std::vector<float> values(static_cast<size_t>(shape.numel()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(step * static_cast<float>(i + 1));
    return Tensor::from<float>(*stream, DType::F32, shape, values);
  };
  Linear layer(5, 7, true);
  layer.weight = numbers({7, 5}, 0.7f), layer.bias = numbers({7}, 0.3f);
  layer.adapters = {{.down = numbers({2, 5}, 0.9f), .up = numbers({7, 2}, 1.1f), .scale = 2}};
  const Tensor x = numbers({1, 3, 5}, 1.3f), whole = layer(x), part = layer.outputs(2, 4)(x);
  EXPECT_EQ(part.shape(), (Shape{1, 3, 4}));
  const auto expected = whole.narrowed(2, 2, 4).to_floats(), got = part.to_floats();
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5f);
}

}  // namespace
}  // namespace flux2
