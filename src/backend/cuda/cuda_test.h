#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/cuda_device.h"
#include "tensor/tensor.h"
#include "tensor/token_kernels.h"

namespace flux2 {

// Tests of the GPU: skipped where there is none.
class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU on this machine";
    device = open_cuda(0);
    stream = device->open_stream();
  }

  const Kernels& kernels() const { return device->kernels(); }
  const TokenKernels& token_kernels() const { return *token_kernels_of(*device); }

  // Normal values, already rounded to the dtype, so that host and device start from the same numbers.
  Tensor random(const Shape& shape, DType dtype, double spread = 1.0) {
    std::normal_distribution<double> normal(0.0, spread);
    std::vector<float> values(static_cast<size_t>(shape.numel()));
    for (float& v : values) v = static_cast<float>(normal(generator));
    return Tensor::from(*stream, dtype, shape, std::span<const float>(values));
  }
  Tensor ints(const Shape& shape, const std::vector<int32_t>& values) {
    return Tensor::from(*stream, DType::I32, shape, std::span<const int32_t>(values));
  }
  // Memory that shows when a kernel leaves it out.
  Tensor blank(const Shape& shape, DType dtype) {
    Tensor t = Tensor::empty(*stream, dtype, shape);
    t.fill(12345.0);
    return t;
  }

  std::shared_ptr<Device> device;
  std::shared_ptr<Stream> stream;
  std::mt19937 generator{20240607};
};

// Every element within absolute + relative · |wanted|; the worst one is printed.
inline void expect_close(const Tensor& actual, const std::vector<double>& wanted, double relative, double absolute,
                         const std::string& what) {
  const std::vector<double> values = actual.to_doubles();
  ASSERT_EQ(values.size(), wanted.size()) << what;
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double excess =
        std::isfinite(values[i]) ? std::abs(values[i] - wanted[i]) / (absolute + relative * std::abs(wanted[i])) : 1e30;
    if (excess > worst) worst = excess, at = i;
  }
  EXPECT_LE(worst, 1.0) << what << ": element " << at << " is " << values[at] << ", should be " << wanted[at];
}

// What one rounding to the dtype plus F32 arithmetic over `terms` terms may cost.
inline double tolerance(DType dtype, double terms = 1) {
  return dtype == DType::BF16 ? 0x1p-8 + terms * 0x1p-22 : 4e-6 + terms * 0x1p-22;
}

inline size_t at(int64_t i) { return static_cast<size_t>(i); }

}  // namespace flux2
