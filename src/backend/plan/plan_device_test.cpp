#include "backend/plan/plan_device.h"

#include <gtest/gtest.h>

#include "tensor/tensor.h"

namespace flux2 {
namespace {

// Something to plan for: every kernel but one, none of which may run.
class Target final : public Device {
 public:
  Target() {
    kernels_.scale = [](const ScaleArgs&) { FAIL() << "a plan must not compute"; };
    kernels_.copy = [](const CopyArgs&) { FAIL() << "a plan must not compute"; };
    kernels_.linear = [](const LinearArgs&) { FAIL() << "a plan must not compute"; };
  }
  std::string name() const override { return "target"; }
  std::string description() const override { return "a target"; }
  bool is_host() const override { return false; }
  std::shared_ptr<Stream> open_stream() override { return nullptr; }
};

TEST(PlanDevice, CountsInsteadOfComputing) {
  const auto target = std::make_shared<Target>();
  const auto device = open_plan_device(*target);
  EXPECT_EQ(device->name(), "target");
  EXPECT_EQ(device->kernels().norm_rope, nullptr);
  ASSERT_NE(device->kernels().scale, nullptr);

  const auto stream = device->open_stream();
  {
    const Tensor a = Tensor::empty(*stream, DType::F32, {1024});
    const Tensor b = Tensor::like(a);
    device->kernels().scale({a, b, 2.0, 0.0});
    EXPECT_EQ(stream->used_bytes(), 8192u);
    EXPECT_EQ(a.cloned().to_floats(), std::vector<float>(1024, 0.0f));
  }
  EXPECT_EQ(stream->used_bytes(), 0u);
  EXPECT_EQ(stream->peak_bytes(), 12288u);
}

TEST(PlanDevice, AQuantisedWeightIsDequantisedForItsProduct) {
  const auto target = std::make_shared<Target>();
  const auto device = open_plan_device(*target);
  const auto stream = device->open_stream();
  const Tensor x = Tensor::empty(*stream, DType::BF16, {1, 512}), y = Tensor::empty(*stream, DType::BF16, {1, 1024});
  const size_t before = stream->used_bytes();
  for (const auto& [stored, dequantised] : {std::pair{DType::BF16, 0}, std::pair{DType::Q4_K, 1024 * 512 * 2}}) {
    const Tensor w = Tensor::host_empty(stored, {1024, 512});
    restart_peak(*stream);
    device->kernels().linear({x, w, nullptr, y});
    EXPECT_EQ(restart_peak(*stream), before + static_cast<size_t>(dequantised));
  }
}

TEST(PlanDevice, AGpuThatIsNotHereHasEveryKernelAndItsMemory) {
  const auto device = open_plan_gpu({.total = 8000, .available = 7000});
  EXPECT_FALSE(device->is_host());
  EXPECT_EQ(device->memory().available, 7000);
  EXPECT_TRUE(device->multiplies(DType::F8_E4M3));
  const Kernels& kernels = device->kernels();
  EXPECT_NE(kernels.norm_rope_grad, nullptr);
  EXPECT_NE(kernels.optimise, nullptr);
  const auto stream = device->open_stream();
  // Forwards, 8-bit numbers are multiplied as they are. The gradient needs an fp8 weight transposed, and itself in fp8. A product
  // that adds to its result needs the same.
  const Tensor x = Tensor::empty(*stream, DType::BF16, {1, 512}), y = Tensor::empty(*stream, DType::BF16, {1, 1024});
  const Tensor w = Tensor::host_empty(DType::F8_E4M3, {1024, 512});
  const size_t used = stream->used_bytes(), unpacked = 1024 * 512 * 2;
  restart_peak(*stream);
  kernels.linear({x, w, nullptr, y});
  EXPECT_EQ(restart_peak(*stream), used);
  kernels.linear_grad_input({y, w, x});
  EXPECT_EQ(restart_peak(*stream), used + unpacked / 2 + 1024);
  kernels.linear_grad_input({y, Tensor::host_empty(DType::I8, w.shape()), x});
  EXPECT_EQ(restart_peak(*stream), used + unpacked);
  kernels.product_add({x, w, y, 1.0, true});
  EXPECT_EQ(restart_peak(*stream), used);
  kernels.product_add({y, w, x, 1.0, false});
  EXPECT_EQ(restart_peak(*stream), used + unpacked / 2 + 1024);
  // Attention in 8 bits keeps queries, keys and values as bytes.
  const Tensor q = Tensor::empty(*stream, DType::BF16, {1, 384, 8, 128});
  restart_peak(*stream);
  const size_t before = stream->used_bytes(), operands = 3 * 384 * 8 * 128;
  kernels.attention({q, q, q, q, nullptr, nullptr, 1.0f, false});
  EXPECT_EQ(restart_peak(*stream), before);
  kernels.attention({q, q, q, q, nullptr, nullptr, 1.0f, false, true});
  EXPECT_GT(stream->peak_bytes(), before + operands);
  EXPECT_LT(stream->peak_bytes(), before + operands + (size_t{20} << 20));
}

TEST(PlanDevice, AGraphKeepsWhatItsWorkNeeded) {
  const auto target = std::make_shared<Target>();
  const auto stream = open_plan_device(*target)->open_stream();
  auto graph = stream->capture([&] {
    const Tensor a = Tensor::empty(*stream, DType::F32, {512});
    const Tensor b = Tensor::empty(*stream, DType::F32, {512});
  });
  EXPECT_EQ(stream->used_bytes(), 4096u);
  graph.reset();
  EXPECT_EQ(stream->used_bytes(), 0u);
  EXPECT_EQ(stream->peak_bytes(), 4096u);
}

}  // namespace
}  // namespace flux2
