#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "backend/cpu/gemm/gemm.h"
#include "tensor/tensor.h"

namespace flux2::gemm {

// Reproducible values in [−1, 1).
inline std::vector<float> noise(int64_t count, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(count));
  uint32_t state = seed * 2654435761u + 1;
  for (float& v : values) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
  }
  return values;
}

inline Tensor noise(Stream& stream, DType dtype, const Shape& shape, uint32_t seed) {
  return Tensor::from<float>(stream, dtype, shape, noise(shape.numel(), seed));
}

inline std::vector<float> rounded_to_bf16(std::vector<float> values) {
  for (float& v : values) v = to_float(to_bf16(v));
  return values;
}

// A device of one profile with a stream on it.
struct TestCpu {
  explicit TestCpu(Profile p, int threads = 2)
      : profile(p), device(open_cpu({.threads = threads, .profile = p})), stream(device->open_stream()) {}

  // Whether products of m rows with weights of this dtype round both operands to bf16.
  bool rounds(DType weight, int64_t m) const { return rounds() && weight != DType::F32 && m > 4; }
  bool rounds() const { return profile == Profile::Fast && !bf16_kernels(CpuFeatures::detect()).empty(); }

  Profile profile;
  std::shared_ptr<Device> device;
  std::shared_ptr<Stream> stream;
};

// A sum of `terms` products in double with the error an f32 sum of them may have: rounding errors behave like a random
// walk, and three times its length is news.
struct Sum {
  double value = 0, magnitude = 0;
  int64_t terms = 0;

  void add(double a, double b) {
    value += a * b;
    magnitude += std::abs(a * b);
    ++terms;
  }
  double tolerance() const {
    const double count = static_cast<double>(terms);
    return 3 * (2 + std::sqrt(count)) * 0x1p-24 * (magnitude / std::sqrt(count + 1) + std::abs(value)) + 1e-30;
  }
};

// Prints the worst place rather than every place.
class Agreement {
 public:
  void see(double got, double want, double tolerance, const std::string& where) {
    const double excess = std::abs(got - want) / tolerance;
    if (excess <= worst_) return;  // NaN is never within a tolerance
    worst_ = std::isnan(excess) ? INFINITY : excess;
    text_ = fmt::format("{}: got {}, want {} ± {}", where, got, want, tolerance);
  }
  void expect(const std::string& what) const { EXPECT_LE(worst_, 1.0) << what << ": " << text_; }

 private:
  double worst_ = 0;
  std::string text_;
};

}  // namespace flux2::gemm
