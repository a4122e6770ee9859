#include "backend/cpu/gemm/row_dots.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "backend/cpu/cpu_features.h"
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/test_values.h"

namespace flux2::gemm {
namespace {

TEST(RowDots, ActivationsAreRoundedInBlocks) {
  std::vector<float> x(70);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3.0f;
  x[5] = 254.0f;  // the largest of its block
  std::vector<int8_t> q(96, 99);
  std::vector<float> scales(3), sums(3);
  quantise_for_dots(x.data(), 70, q.data(), scales.data(), sums.data());
  EXPECT_FLOAT_EQ(scales[0], 2.0f);
  EXPECT_EQ(q[5], 127);
  EXPECT_FLOAT_EQ(scales[1], 3.0f / 127.0f);
  for (size_t i = 70; i < 96; ++i) EXPECT_EQ(q[i], 0) << "filled up with zeros";
  for (size_t b = 0; b < 3; ++b) {
    int sum = 0;
    for (size_t i = 32 * b; i < 32 * b + 32; ++i) sum += q[i];
    EXPECT_FLOAT_EQ(sums[b], scales[b] * static_cast<float>(sum));
  }
}

TEST(RowDots, ZerosAndNoNumbers) {
  std::vector<float> x(64);
  x[40] = std::numeric_limits<float>::infinity();
  std::vector<int8_t> q(64);
  std::vector<float> scales(2), sums(2);
  quantise_for_dots(x.data(), 64, q.data(), scales.data(), sums.data());
  EXPECT_EQ(sums[0], 0.0f);
  EXPECT_TRUE(std::isfinite(scales[0]));
  EXPECT_TRUE(std::isnan(scales[1]));
}

// A weight with one row of any dtype that row products read.
Tensor stored_row(Stream& stream, DType dtype, int64_t k) {
  if (is_block_type(dtype)) return block_weight(dtype, 1, k);
  if (dtype == DType::F16) return noise(stream, dtype, {1, k}, 5);
  std::vector<uint8_t> bytes(static_cast<size_t>(k));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>((i * 53) % 256);
  for (uint8_t& b : bytes)
    if (dtype != DType::I8 && (b & 0x7c) == 0x7c) b &= 0x8f;  // neither infinite nor NaN
  return Tensor::host_copy(bytes.data(), dtype, {1, k});
}

// Every instruction set of this machine with every format it has a product for, against sums in double.
TEST(RowDots, EveryFormatOfEveryInstructionSet) {
  const TestCpu s(Profile::Fast);
  for (const RowDots* dots : row_dots(CpuFeatures::detect()))
    for (const DType dtype : {DType::I8, DType::Q8_0, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::IQ4_NL,
                              DType::Q2_K, DType::Q3_K, DType::Q4_K, DType::Q5_K, DType::Q6_K, DType::IQ4_XS, DType::NVFP4,
                              DType::F16, DType::F8_E4M3, DType::F8_E5M2, DType::F8_128}) {
      const RowDot of_integers = dots->of_integers(dtype);
      const RowFloatDot of_floats = dots->of_floats(dtype);
      if (!of_integers && !of_floats) continue;
      const bool blocks = is_block_type(dtype);
      for (const int64_t k : {1, 15, 31, 32, 33, 96, 224, 256, 288, 384, 397, 512, 2560, 2816}) {
        if (k % info(dtype).block_elements != 0) continue;
        const Tensor w = stored_row(*s.stream, dtype, k);
        std::vector<float> x = noise(k, 3);
        const std::vector<float> given = x, ws = blocks ? weight_values(w) : w.to_floats();
        const auto count = static_cast<size_t>((k + kDotBlock - 1) / kDotBlock);
        std::vector<int8_t> values(count * kDotBlock);
        std::vector<float> scales(count), sums(count);
        quantise_for_dots(given.data(), k, values.data(), scales.data(), sums.data());
        if (of_integers) x = rounded_for_dots(given, k);
        const float got = of_integers ? of_integers(w.raw(), {values.data(), scales.data(), sums.data()}, k)
                                      : of_floats(w.raw(), given.data(), k);
        double sum = 0, size = 0;
        for (size_t i = 0; i < x.size(); ++i) {
          const double term = double{x[i]} * double{ws[i]};
          sum += term;
          size += std::abs(term);
        }
        EXPECT_NEAR(got, sum, 2e-6 * size) << name_of(dtype) << ", " << k;
      }
    }
}

TEST(RowDots, AnEightBitFloatThatIsNoNumberReachesTheResult) {
  for (const RowDots* dots : row_dots(CpuFeatures::detect()))
    for (const DType dtype : {DType::F8_E4M3, DType::F8_E5M2})
      for (const uint8_t nan : {0x7f, 0xff}) {
        if (!dots->of_floats(dtype)) continue;
        std::vector<uint8_t> w(40, 0x30);
        w[21] = nan;
        const std::vector<float> x(w.size(), 1.0f);
        EXPECT_TRUE(std::isnan(dots->of_floats(dtype)(w.data(), x.data(), 40))) << name_of(dtype);
      }
}

// One to four rows, with sums of every length around the blocks, against sums in double.
TEST(RowDots, ProductsOfFewRowsUseThem) {
  const TestCpu s(Profile::Fast);
  if (!s.kernels().row_dots) GTEST_SKIP() << "this processor has no such products";
  for (const DType dtype : {DType::I8, DType::Q8_0, DType::Q4_0})
    for (const int64_t k : {32, 64, 96, 128, 160, 544, 2560}) {
      for (const int64_t rest : {0, 1, 31}) {
        if (rest > 0 && dtype != DType::I8) continue;
        const int64_t width = k + rest, n = width == 96 ? 451 : 37, m = 1 + width % 4;
        Tensor w;
        if (dtype == DType::I8) {
          std::vector<int8_t> bytes(static_cast<size_t>(n * width));
          for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<int8_t>((i * 53) % 255 - 127);
          w = Tensor::host_copy(bytes.data(), dtype, {n, width});
        } else {
          w = block_weight(dtype, n, width);
        }
        const Tensor x = noise(*s.stream, DType::F32, {m, width}, 3), y = Tensor::like(x, {m, n});
        s.device->kernels().linear({x, w, nullptr, y});
        const auto xs = rounded_for_dots(x.to_floats(), width), ws = weight_values(w), ys = y.to_floats();
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) {
            double sum = 0, size = 0;
            for (int64_t l = 0; l < width; ++l) {
              const double term = double{xs[static_cast<size_t>(i * width + l)]} * double{ws[static_cast<size_t>(j * width + l)]};
              sum += term;
              size += std::abs(term);
            }
            EXPECT_NEAR(ys[static_cast<size_t>(i * n + j)], sum, 1e-5 * size + 1e-6) << name_of(dtype) << " " << width;
          }
      }
    }
}

// Many columns, with what is added to them: the sums are stored some at a time.
TEST(RowDots, BiasAndScalesOfManyColumns) {
  const TestCpu s(Profile::Fast);
  const int64_t n = 1003, k = 48;
  const Tensor x = noise(*s.stream, DType::F32, {2, k}, 3), bias = noise(*s.stream, DType::F32, {n}, 4);
  const Tensor w = noise(*s.stream, DType::BF16, {n, k}, 5), y = Tensor::like(x, {2, n});
  s.device->kernels().linear({x, w, &bias, y});
  const auto xs = x.to_floats(), ws = w.to_floats(), bs = bias.to_floats(), ys = y.to_floats();
  for (size_t i = 0; i < 2; ++i)
    for (size_t j = 0; j < static_cast<size_t>(n); ++j) {
      double sum = static_cast<double>(bs[j]);
      for (size_t l = 0; l < static_cast<size_t>(k); ++l)
        sum += static_cast<double>(xs[i * static_cast<size_t>(k) + l]) * static_cast<double>(ws[j * static_cast<size_t>(k) + l]);
      ASSERT_NEAR(ys[i * static_cast<size_t>(n) + j], sum, 1e-5) << j;
    }
}

// The weights end where readable memory ends.
TEST(RowDots, NothingBehindTheWeightsIsRead) {
  const TestCpu s(Profile::Fast);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (const RowDots* dots : row_dots(CpuFeatures::detect()))
    for (const DType dtype : {DType::I8, DType::Q8_0, DType::Q4_0, DType::Q5_1, DType::Q2_K, DType::Q3_K, DType::Q4_K,
                              DType::Q6_K, DType::IQ4_XS, DType::NVFP4, DType::F16, DType::F8_E4M3, DType::F8_128})
      for (const int64_t k : {32, 37, 96, 128, 160, 256, 480, 2560}) {
        if (k % info(dtype).block_elements != 0) continue;
        const Tensor w = stored_row(*s.stream, dtype, k);
        const auto bytes = static_cast<size_t>(w.bytes()), size = (bytes + page - 1) / page * page;
        void* memory = mmap(nullptr, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ASSERT_NE(memory, MAP_FAILED);
        ASSERT_EQ(mprotect(static_cast<std::byte*>(memory) + size, page, PROT_NONE), 0);
        std::byte* row = static_cast<std::byte*>(memory) + size - bytes;
        std::memcpy(row, w.data<std::byte>(), bytes);

        const std::vector<float> x = noise(k, 3);
        const auto blocks = static_cast<size_t>((k + kDotBlock - 1) / kDotBlock);
        std::vector<int8_t> values(blocks * kDotBlock);
        std::vector<float> scales(blocks), sums(blocks);
        quantise_for_dots(x.data(), k, values.data(), scales.data(), sums.data());
        const DotRow activations = {values.data(), scales.data(), sums.data()};
        if (const RowDot dot = dots->of_integers(dtype)) {
          EXPECT_EQ(dot(row, activations, k), dot(w.raw(), activations, k)) << name_of(dtype) << ", " << k;
        }
        if (const RowFloatDot dot = dots->of_floats(dtype)) {
          EXPECT_EQ(dot(row, x.data(), k), dot(w.raw(), x.data(), k)) << name_of(dtype) << ", " << k;
        }
        munmap(memory, size + page);
      }
}

TEST(RowDots, ANoNumberInXReachesTheResult) {
  const TestCpu s(Profile::Fast);
  if (!s.kernels().row_dots) GTEST_SKIP() << "this processor has no such products";
  std::vector<float> values(64, 1.0f);
  values[50] = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::from<float>(*s.stream, DType::F32, {1, 64}, values), w = block_weight(DType::Q4_0, 3, 64);
  const Tensor y = Tensor::like(x, {1, 3});
  s.device->kernels().linear({x, w, nullptr, y});
  for (const float v : y.to_floats()) EXPECT_TRUE(std::isnan(v));
}

}  // namespace
}  // namespace flux2::gemm
