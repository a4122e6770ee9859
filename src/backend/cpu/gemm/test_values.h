#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "backend/cpu/gemm/convert.h"
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/row_dots.h"
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

// A weight of a block type with pseudo-random bytes. The f16 values at the offsets `halves` of each block are set to small
// numbers.
inline Tensor coded_weight(DType dtype, std::initializer_list<size_t> halves, int64_t n, int64_t k) {
  const auto size = static_cast<size_t>(info(dtype).block_bytes);
  std::vector<uint8_t> bytes(static_cast<size_t>(bytes_for(dtype, n * k)));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>((i * 2654435761u) >> 13);
  for (size_t b = 0; b < bytes.size() / size; ++b)
    for (size_t at : halves) {
      const f16 scale = to_f16(1e-4f * static_cast<float>(b % 7 + 1));
      std::memcpy(bytes.data() + b * size + at, &scale, 2);
    }
  return Tensor::host_copy(bytes.data(), dtype, {n, k});
}

// A weight of a block type that begins with an f32 scale, with pseudo-random eight-bit floats that are numbers.
inline Tensor scaled_weight(DType dtype, int64_t n, int64_t k) {
  const auto size = static_cast<size_t>(info(dtype).block_bytes);
  std::vector<uint8_t> bytes(static_cast<size_t>(bytes_for(dtype, n * k)));
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>((i * 2654435761u) >> 13);
    if ((bytes[i] & 0x7f) == 0x7f) bytes[i] ^= 1;
  }
  for (size_t b = 0; b < bytes.size() / size; ++b) {
    const float scale = 1e-4f * static_cast<float>(b % 7 + 1);
    std::memcpy(bytes.data() + b * size, &scale, 4);
  }
  return Tensor::host_copy(bytes.data(), dtype, {n, k});
}

// A weight of a block type with varying scales and integers.
inline Tensor block_weight(DType dtype, int64_t n, int64_t k) {
  switch (dtype) {
    case DType::Q4_1:
    case DType::Q5_1:
    case DType::Q4_K:
    case DType::Q5_K: return coded_weight(dtype, {0, 2}, n, k);
    case DType::Q5_0:
    case DType::IQ4_NL:
    case DType::IQ4_XS: return coded_weight(dtype, {0}, n, k);
    case DType::Q2_K: return coded_weight(dtype, {80, 82}, n, k);
    case DType::Q3_K: return coded_weight(dtype, {108}, n, k);
    case DType::Q6_K: return coded_weight(dtype, {208}, n, k);
    case DType::F8_128:
    case DType::NVFP4: return scaled_weight(dtype, n, k);
    default: break;
  }
  const auto count = static_cast<size_t>(n * k / 32);
  std::vector<BlockQ8_0> q8(dtype == DType::Q8_0 ? count : 0);
  for (size_t i = 0; i < q8.size(); ++i) {
    q8[i].scale = to_f16(0.001f * static_cast<float>(i % 7 + 1));
    for (int j = 0; j < 32; ++j) q8[i].q[j] = static_cast<int8_t>((i * 31 + static_cast<size_t>(j) * 77) % 255);
  }
  std::vector<BlockQ4_0> q4(dtype == DType::Q4_0 ? count : 0);
  for (size_t i = 0; i < q4.size(); ++i) {
    q4[i].scale = to_f16(0.01f * static_cast<float>(i % 5 + 1));
    for (int j = 0; j < 16; ++j) q4[i].q[j] = static_cast<uint8_t>(i * 13 + static_cast<size_t>(j) * 59);
  }
  return Tensor::host_copy(q8.empty() ? static_cast<const void*>(q4.data()) : q8.data(), dtype, {n, k});
}

inline double largest_block_scale(DType dtype) { return dtype == DType::Q8_0 || dtype == DType::Q5_1 ? 0.007 : 0.05; }

// The values of a contiguous weight, multiplied by its scales.
inline std::vector<float> weight_values(const Tensor& w) {
  std::vector<float> values(static_cast<size_t>(w.numel()));
  convert(w.dtype(), w.raw(), 0, w.numel(), values.data());
  const Tensor& scales = w.scales();
  for (size_t i = 0; scales.defined() && i < values.size(); ++i)
    values[i] *= scales.data<float>()[scales.numel() == 1 ? 0 : i / static_cast<size_t>(w.dim(1))];
  return values;
}

// The values of a contiguous weight that the kernel for block types uses. It first rounds types other than Q8_0 and Q4_0 to int8.
inline std::vector<float> block_values(const Tensor& w) {
  std::vector<float> values = weight_values(w);
  if (w.dtype() == DType::Q8_0 || w.dtype() == DType::Q4_0) return values;
  for (size_t b = 0; b < values.size(); b += 32) {
    float most = 0;
    for (size_t i = b; i < b + 32; ++i) most = std::max(most, std::abs(values[i]));
    for (size_t i = b; i < b + 32; ++i) values[i] = most > 0 ? std::round(values[i] * (127.0f / most)) * (most / 127.0f) : 0;
  }
  return values;
}

inline std::vector<float> rounded_to_bf16(std::vector<float> values) {
  for (float& v : values) v = to_float(to_bf16(v));
  return values;
}

// Rows of `width` values, rounded to int8 with one scale per row.
// Rows of `width` activations, rounded to int8 in blocks of 32 as products with few rows do it.
inline std::vector<float> rounded_for_dots(const std::vector<float>& values, int64_t width) {
  const auto blocks = static_cast<size_t>((width + kDotBlock - 1) / kDotBlock), k = static_cast<size_t>(width);
  std::vector<int8_t> q(blocks * kDotBlock);
  std::vector<float> scales(blocks), sums(blocks), rounded(values.size());
  for (size_t row = 0; row < values.size(); row += k) {
    quantise_for_dots(values.data() + row, width, q.data(), scales.data(), sums.data());
    for (size_t i = 0; i < k; ++i) rounded[row + i] = scales[i / kDotBlock] * static_cast<float>(q[i]);
  }
  return rounded;
}

inline std::vector<float> rounded_to_int8(std::vector<float> values, int64_t width) {
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t first = i / static_cast<size_t>(width) * static_cast<size_t>(width);
    if (i > first) continue;
    float most = 0;
    for (size_t j = first; j < first + static_cast<size_t>(width); ++j) most = std::max(most, std::abs(values[j]));
    const float scale = most / 127.0f, inverse = 1.0f / scale;
    for (size_t j = first; j < first + static_cast<size_t>(width); ++j) values[j] = std::nearbyint(values[j] * inverse) * scale;
  }
  return values;
}

// A CPU device with one profile, and a stream on it.
struct TestCpu {
  explicit TestCpu(Profile p, int threads = 2)
      : profile(p), device(open_cpu({.threads = threads, .profile = p})), stream(device->open_stream()) {}

  // Whether products of m rows with weights of this dtype round both operands to bf16.
  bool rounds(DType weight, int64_t m) const { return rounds() && weight != DType::F32 && m > 4 && !quantises(weight, m); }
  bool rounds() const { return kernels().in_bf16 != nullptr; }

  // Whether such products round the activations to int8 and use the integers of the weight unchanged.
  bool quantises(DType weight, int64_t m) const {
    if (m <= 4) return false;
    return weight == DType::I8 ? kernels().in_int8 != nullptr : is_block_type(weight) && kernels().in_blocks;
  }

  // Whether such products, of few rows, round each 32 activations to int8 (row_dots.h).
  bool dots(DType weight, int64_t m) const { return m <= 4 && kernels().row_dots && kernels().row_dots->of_integers(weight); }

  const KernelSet& kernels() const { return kernel_set(CpuFeatures::detect(), profile); }

  Profile profile;
  std::shared_ptr<Device> device;
  std::shared_ptr<Stream> stream;
};

// A sum of `terms` products in double precision, with the tolerance for the same sum in f32. Rounding errors behave like a random
// walk. An error of more than three times its expected length is a failure.
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

// Compares values and reports only the place with the largest error.
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
