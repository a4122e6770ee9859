#include "engine/weight_stream.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/grad.h"
#include "backend/cpu/cpu_device.h"
#include "engine/network_bytes.h"
#include "model/block_layers.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"

namespace flux2 {
namespace {

// Seven blocks of two shapes, the third of them stays; block i is full of i + 1.
class Network {
 public:
  explicit Network(Device& device) : stream(device.open_stream()), weights(7) {
    std::vector<std::vector<WeightStream::Source>> blocks(7);
    for (size_t i = 0; i < 7; ++i) {
      const std::vector<float> values(i < 3 ? 64 : 4096, static_cast<float>(i + 1));
      const Tensor host = Tensor::host_copy(values.data(), DType::F32, {static_cast<int64_t>(values.size())});
      if (i == 2) weights[i] = host.to(*stream);
      else blocks[i] = {{host, &weights[i]}};
    }
    schedule = std::make_shared<WeightStream>(std::move(blocks), *stream, device.open_stream());
  }

  void pass(size_t blocks) {
    for (size_t i = 0; i < blocks; ++i) {
      const BlockTurn turn(schedule, i, *stream);
      for (float v : weights[i].to_floats()) ASSERT_EQ(v, static_cast<float>(i + 1)) << "block " << i;
    }
  }

  void pass_back(size_t blocks) {
    for (size_t i = blocks; i-- > 0;) {
      const BlockTurn turn(schedule, i, *stream);
      for (float v : weights[i].to_floats()) ASSERT_EQ(v, static_cast<float>(i + 1)) << "block " << i << ", back";
    }
  }

  std::shared_ptr<Stream> stream;
  std::vector<Tensor> weights;
  std::shared_ptr<BlockSchedule> schedule;
};

TEST(WeightStream, EveryBlockSeesItsOwnWeightsInEveryPass) {
  const auto device = open_cpu({.threads = 1});
  Network network(*device);
  for (int pass = 0; pass < 50; ++pass) network.pass(7);
}

// Whatever their shapes: klein-9B's double and single blocks had two places each, and 0.9 GB too much.
TEST(WeightStream, AllBlocksShareTwoBuffers) {
  const auto device = open_cpu({.threads = 1});
  Network network(*device);
  const auto at = [&](size_t i) { return network.weights[i].raw(); };
  EXPECT_EQ(at(0), at(3));
  EXPECT_EQ(at(0), at(5));
  EXPECT_EQ(at(1), at(4));
  EXPECT_EQ(at(1), at(6));
  EXPECT_NE(at(0), at(1));
}

// A tensor that an op creates from a weight is on the weight's stream; on the copy stream it would not be ordered with the
// product.
TEST(WeightStream, BuffersBelongToTheNetworksStream) {
  const auto device = open_cpu({.threads = 1});
  Network network(*device);
  for (const Tensor& w : network.weights) EXPECT_EQ(&w.stream(), network.stream.get());
}

TEST(WeightStream, RecoversFromAnAbortedPass) {
  const auto device = open_cpu({.threads = 1});
  Network network(*device);
  for (size_t blocks : {3u, 7u, 1u, 5u, 6u, 7u, 7u}) network.pass(blocks);
}

TEST(WeightStream, RunsThereAndBack) {
  const auto device = open_cpu({.threads = 1});
  Network network(*device);
  auto& schedule = dynamic_cast<WeightStream&>(*network.schedule);
  network.pass(7);
  schedule.expect_gradients(true);
  for (int pass = 0; pass < 30; ++pass) {
    network.pass(7);
    network.pass_back(7);
  }
  for (int pass = 0; pass < 3; ++pass) network.pass(7);  // images between steps
  network.pass(7);
  network.pass_back(7);
  schedule.expect_gradients(false);
  network.pass(7);
}

// A streamed block's gradient needs its own weights, which other blocks have replaced since it ran.
TEST(WeightStream, GradientsOfStreamedBlocksAreThoseOfResidentOnes) {
  Flux2Config config;
  config.hidden = 256;
  config.double_blocks = 2;
  config.single_blocks = 3;
  config.text_width = 48;
  const auto device = open_cpu({.threads = 2, .profile = Profile::Exact});
  const auto stream = device->open_stream();
  const auto random = [&](const Shape& shape, double scale, uint64_t seed) {
    std::vector<float> values(static_cast<size_t>(shape.numel()));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(scale * std::sin(static_cast<double>(i * 31 + seed)));
    return Tensor::from(*stream, DType::F32, shape, std::span<const float>(values));
  };
  Flux2Transformer network(config);
  uint64_t seed = 0;
  network.visit([&](const Parameter& p) {
    p.tensor = random(p.shape, p.kind == ParameterKind::Vector ? 1 : 1 / std::sqrt(static_cast<double>(p.shape[-1])), ++seed);
  });
  const Rope rope = flux2_rope(*stream, std::vector<TokenPosition>(10));
  const Tensor x = random({1, 6, 128}, 1, 5), txt = random({1, 4, 256}, 1, 6), vec = random({1, 256}, 1, 7);
  const auto gradients = [&](Flux2Transformer& net, const std::vector<BlockMemory>& memory = {}) {
    std::vector<std::vector<float>> all;
    std::vector<Tensor> leaves;
    for (const auto& [path, layer] : block_layers(net)) {
      Lora lora{.down = parameter(random({2, layer->in}, 0.1, 8)), .up = parameter(random({layer->out, 2}, 0.1, 9))};
      leaves.push_back(lora.down);
      layer->adapters = {lora};
    }
    const Gradients g = backward(mean(square(
        net({.x = x, .vec = vec, .txt = txt, .rope = rope, .checkpoint_blocks = true, .block_memory = memory, .taps = {}}))));
    for (const Tensor& leaf : leaves) all.push_back(g.contains(leaf) ? g[leaf].to_floats() : std::vector<float>());
    return all;
  };
  Flux2Transformer resident = network, streamed = network, partly = network;
  const auto expected = gradients(resident);
  const auto stream_blocks = [&](Flux2Transformer& net, const std::function<bool(size_t)>& chosen) {
    std::vector<std::vector<WeightStream::Source>> blocks;
    BlockNumbers numbers;
    net.visit([&](const Parameter& p) {
      const auto block = numbers.of(p.name);
      blocks.resize(numbers.count());
      if (block && chosen(*block) && p.kind == ParameterKind::Matrix) {
        const std::vector<float> values = p.tensor.to_floats();
        blocks[*block].push_back({Tensor::host_copy(values.data(), DType::F32, p.shape), &p.tensor});
      }
    });
    auto schedule = std::make_shared<WeightStream>(std::move(blocks), *stream, device->open_stream());
    net.schedule = schedule;
    return schedule;
  };
  // Some blocks are streamed and computed twice; the others stay and keep everything.
  stream_blocks(partly, [](size_t block) { return block == 1 || block == 3; })->expect_gradients(true);
  std::vector<BlockMemory> mixed(5);
  mixed[1].recompute = mixed[3].recompute = true;
  for (int repeat = 0; repeat < 2; ++repeat) EXPECT_EQ(gradients(partly, mixed), expected);
  mixed[3].recompute = false;
  EXPECT_THROW(gradients(partly, mixed), Error);

  const auto schedule = stream_blocks(streamed, [](size_t) { return true; });
  for (const bool there_and_back : {false, true}) {
    schedule->expect_gradients(there_and_back);
    for (int repeat = 0; repeat < 2; ++repeat) EXPECT_EQ(gradients(streamed), expected) << there_and_back;
  }
  // Without checkpointing, the gradient would read the weights of other blocks.
  EXPECT_THROW(streamed({.x = x, .vec = vec, .txt = txt, .rope = rope, .taps = {}}), Error);
}

TEST(WeightStream, CanBeDestroyedAtAnyTime) {
  const auto device = open_cpu({.threads = 1});
  for (int i = 0; i < 20; ++i) Network(*device).pass(static_cast<size_t>(i) % 8);
}

}  // namespace
}  // namespace flux2
