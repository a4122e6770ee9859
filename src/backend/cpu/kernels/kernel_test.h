#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "tensor/tensor.h"

namespace flux2::cpu {

// Runs a test on the plain kernels, on the fast ones of this machine with f32 products, and with several threads.
class KernelTest : public ::testing::TestWithParam<CpuOptions> {
 protected:
  Tensor random(const Shape& shape, DType dtype = DType::F32) {
    std::vector<double> values(static_cast<size_t>(shape.numel()));
    std::normal_distribution<double> normal;
    for (double& v : values) v = normal(generator);
    return Tensor::from<double>(*stream, dtype, shape, values);
  }
  Tensor zeros(const Shape& shape, DType dtype = DType::F32) {
    Tensor t = Tensor::empty(*stream, dtype, shape);
    t.fill(0.0);
    return t;
  }
  Tensor ints(const Shape& shape, const std::vector<int32_t>& values) {
    return Tensor::from<int32_t>(*stream, DType::I32, shape, values);
  }

  // |actual − expected| ≤ tolerance · (1 + |expected|) everywhere; names the worst place otherwise.
  static void expect_close(const Tensor& actual, const std::vector<double>& expected, double tolerance) {
    const std::vector<double> values = actual.to_doubles();
    ASSERT_EQ(values.size(), expected.size());
    size_t worst = 0;
    double most = -1;
    for (size_t i = 0; i < values.size(); ++i) {
      const double error = std::abs(values[i] - expected[i]) / (1 + std::abs(expected[i]));
      if (std::isnan(error) || error > most) most = error, worst = i;
      if (std::isnan(error)) break;
    }
    EXPECT_LE(most, tolerance) << "worst at " << worst << " of " << values.size() << ": " << values[worst] << ", expected "
                               << expected[worst];
  }

  std::shared_ptr<Device> device = open_cpu(GetParam());
  std::shared_ptr<Stream> stream = device->open_stream();
  const Kernels& kernels = device->kernels();
  std::mt19937 generator{20240817};
};

// What a result of this dtype may be off by when sums of about a hundred unit terms were taken in f32 (f64).
inline double tolerance(DType dtype) {
  switch (dtype) {
    case DType::F64: return 1e-12;
    case DType::F32: return 5e-6;
    case DType::F16: return 2e-3;
    default: return 1.2e-2;
  }
}

constexpr CpuOptions kLevels[] = {
    {1, Profile::Exact, true}, {3, Profile::Exact, true}, {1, Profile::Exact, false}, {3, Profile::Exact, false}};

inline std::string level_name(const ::testing::TestParamInfo<CpuOptions>& info) {
  return (info.param.scalar_only ? "Scalar" : "Exact") + std::to_string(info.param.threads);
}

#define FLUX2_KERNEL_LEVELS(suite) INSTANTIATE_TEST_SUITE_P(Cpu, suite, ::testing::ValuesIn(kLevels), level_name)

constexpr DType kFloats[] = {DType::F32, DType::F64, DType::BF16, DType::F16};

}  // namespace flux2::cpu
