// One single-stream block through every interface: f32 and bf16, quantised weights, its gradient under checkpoint(),
// two ranks that share it, and a GPU with a captured graph. The code of the block is the same in all cases.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <thread>

#include "autograd/checkpoint.h"
#include "autograd/grad.h"
#include "engine/backends.h"
#include "model/flux2_blocks.h"
#include "nn/load.h"
#include "ops/arithmetic.h"
#include "tests/support/devices.h"
#include "tests/support/op_cases.h"
#include "weights/safetensors_writer.h"

namespace flux2 {
namespace {

const Flux2Config kSmall{.hidden = 256, .double_blocks = 0, .single_blocks = 1, .text_width = 96};
constexpr int64_t kTokens = 21;

// A block's weights in a file, so that the real loader loads them.
std::shared_ptr<const WeightSource> block_file() {
  const auto device = scalar_device();
  const auto stream = device->open_stream();
  SingleBlock block(kSmall);
  std::vector<std::pair<std::string, Tensor>> tensors;
  uint64_t seed = 1;
  block.visit("single_blocks.0.", [&](const Parameter& p) {
    const double spread = p.kind == ParameterKind::Vector ? 1.0 : 1.0 / std::sqrt(static_cast<double>(p.shape[-1]));
    tensors.emplace_back(p.name, random_tensor(*stream, DType::BF16, p.shape, seed++, spread));
  });
  const std::string path = testing::TempDir() + fmt::format("bullet-{}.safetensors", ::getpid());
  save_tensors(path, tensors);
  return open_weights(path);
}

SingleBlock load_block(Stream& stream, DType activations, Communicator* ranks = nullptr) {
  SingleBlock block(kSmall, ranks);
  load_parameters({block_file(), ModelPart::Transformer}, {.stream = stream, .activations = activations, .ranks = ranks},
                  [&](const ParameterVisitor& v) { block.visit("single_blocks.0.", v); });
  return block;
}

struct BlockInputs {
  Tensor x;
  Rope rope;
  Modulation m;
};

BlockInputs inputs(Stream& stream, DType dtype) {
  std::vector<TokenPosition> where(kTokens);
  for (int32_t i = 0; i < static_cast<int32_t>(kTokens); ++i) where[static_cast<size_t>(i)] = {0, i / 5, i % 5, 0};
  const auto vector = [&](uint64_t seed) { return random_tensor(stream, dtype, {1, 1, kSmall.hidden}, seed, 0.3); };
  return {random_tensor(stream, dtype, {1, kTokens, kSmall.hidden}, 50),
          flux2_rope(stream, where),
          {vector(51), vector(52), vector(53)}};
}

Tensor run(const SingleBlock& block, const BlockInputs& in) { return block(in.x, in.rope, in.m); }

std::vector<double> reference() {
  const auto stream = scalar_device()->open_stream();
  return run(load_block(*stream, DType::F32), inputs(*stream, DType::F32)).to_doubles();
}

// W as Q8_0: the largest magnitude of 32 values becomes 127.
Tensor quantised(const Tensor& weight) {
  const std::vector<float> values = weight.to_floats();
  std::vector<BlockQ8_0> blocks(values.size() / 32);
  for (size_t b = 0; b < blocks.size(); ++b) {
    float largest = 0;
    for (size_t i = 0; i < 32; ++i) largest = std::max(largest, std::abs(values[32 * b + i]));
    blocks[b].scale = to_f16(largest / 127.0f);
    for (size_t i = 0; i < 32; ++i)
      blocks[b].q[i] = static_cast<int8_t>(largest > 0 ? std::lround(values[32 * b + i] * 127.0f / largest) : 0);
  }
  return Tensor::host_copy(blocks.data(), DType::Q8_0, weight.shape());
}

TEST(Bullet, F32AndBf16OnEveryDevice) {
  const auto expected = reference();
  for (const NamedDevice& d : other_devices())
    for (DType dtype : {DType::F32, DType::BF16}) {
      const auto stream = d.device->open_stream();
      const Difference off = difference(run(load_block(*stream, dtype), inputs(*stream, dtype)).to_doubles(), expected);
      const bool exact = dtype == DType::F32 && d.name != "cpu fast";
      EXPECT_LE(off.relative, exact ? 1e-5 : 1e-2) << d.name << " " << name_of(dtype) << ": " << off.str();
    }
}

TEST(Bullet, QuantisedWeights) {
  const auto expected = reference();
  std::vector<NamedDevice> devices = other_devices();
  devices.push_back({"cpu scalar", scalar_device()});
  for (const NamedDevice& d : devices) {
    const auto stream = d.device->open_stream();
    SingleBlock block = load_block(*stream, DType::F32);
    const auto host = scalar_device()->open_stream();
    SingleBlock source = load_block(*host, DType::F32);
    block.in.weight = quantised(source.in.weight);
    block.out.weight = quantised(source.out.weight);
    if (!d.device->is_host()) {
      block.in.weight = block.in.weight.to(*stream);
      block.out.weight = block.out.weight.to(*stream);
    }
    const Difference off = difference(run(block, inputs(*stream, DType::F32)).to_doubles(), expected);
    EXPECT_LE(off.relative, 1e-2) << d.name << ": " << off.str();
    EXPECT_GT(off.relative, 1e-5) << "quantisation should show";
  }
}

TEST(Bullet, GradientUnderCheckpointHasTheSameBits) {
  for (const NamedDevice& d : other_devices())
    for (DType dtype : {DType::F32, DType::BF16}) {
      const auto stream = d.device->open_stream();
      SingleBlock block = load_block(*stream, dtype);
      block.visit("", [&](const Parameter& p) { p.tensor = parameter(p.tensor.to(*stream).cast(dtype)); });
      BlockInputs in = inputs(*stream, dtype);
      in.x = parameter(in.x);
      in.m.gate = parameter(in.m.gate);
      const Tensor plain = run(block, in);
      const Tensor kept = checkpoint(
          [&](const std::vector<Tensor>& v) {
            return std::vector{block(v[0], in.rope, {in.m.shift, in.m.scale, v[1]})};
          },
          {in.x, in.m.gate})[0];
      EXPECT_EQ(kept.to_floats(), plain.to_floats());
      const Gradients a = backward(sum(plain * plain)), b = backward(sum(kept * kept));
      EXPECT_EQ(a.by_node.size(), 6u);  // x, gate, two matrices, two norms
      for (const Tensor& leaf : {in.x, in.m.gate, block.in.weight, block.out.weight, block.norm.q_scale, block.norm.k_scale})
        EXPECT_EQ(a[leaf].to_floats(), b[leaf].to_floats()) << d.name;
    }
}

TEST(Bullet, TwoRanksShareOneBlock) {
  const auto expected = reference();
  const auto ranks = local_communicators(2);
  std::array<std::vector<double>, 2> results;
  std::vector<std::thread> threads;
  for (size_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      const auto stream = scalar_device()->open_stream();
      const SingleBlock block = load_block(*stream, DType::F32, ranks[r].get());
      EXPECT_EQ(block.in.weight.shape(), (Shape{9 * 256 / 2, 256}));  // half of q, k, v, gate, up each
      EXPECT_EQ(block.out.weight.shape(), (Shape{256, 4 * 256 / 2}));
      results[r] = run(block, inputs(*stream, DType::F32)).to_doubles();
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(results[0], results[1]);
  EXPECT_LE(difference(results[0], expected).relative, 1e-5);
}

TEST(Bullet, CapturedAndReplayed) {
  for (const NamedDevice& d : other_devices())
    for (DType dtype : {DType::F32, DType::BF16}) {
      const auto stream = d.device->open_stream();
      const SingleBlock block = load_block(*stream, dtype);
      const BlockInputs in = inputs(*stream, dtype);
      const auto first = run(block, in).to_doubles();
      Tensor y;
      const auto graph = stream->capture([&] { y = run(block, in); });
      graph->replay();
      EXPECT_EQ(y.to_doubles(), first) << d.name;
      // New values in the same input: the same graph computes with them.
      in.x.copy_from(random_tensor(*stream, dtype, in.x.shape(), 99));
      graph->replay();
      const auto second = y.to_doubles();
      EXPECT_EQ(second, run(block, in).to_doubles()) << d.name;
      EXPECT_NE(second, first);
    }
}

}  // namespace
}  // namespace flux2
