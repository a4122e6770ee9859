#include "engine/weight_stream.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu_device.h"

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

TEST(WeightStream, CanBeDestroyedAtAnyTime) {
  const auto device = open_cpu({.threads = 1});
  for (int i = 0; i < 20; ++i) Network(*device).pass(static_cast<size_t>(i) % 8);
}

}  // namespace
}  // namespace flux2
