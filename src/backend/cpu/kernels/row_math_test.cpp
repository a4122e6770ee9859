#include "backend/cpu/kernels/row_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "backend/cpu/kernels/simd.h"

namespace flux2::cpu {
namespace {

// Every level this machine can run, the scalar one first; features are taken away one by one.
std::vector<RowMath<float>> levels() {
  CpuFeatures features = CpuFeatures::detect();
  std::vector<RowMath<float>> tables{scalar_row_math<float>()};
  const auto add = [&] {
    tables.push_back(scalar_row_math<float>());
    install_simd(tables.back(), features);
  };
  add();
  features.avx512f = false;
  add();
  return tables;
}

std::vector<float> random(int64_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = normal(generator);
  return values;
}

double ulps(float actual, double exact) {
  const float nearest = static_cast<float>(exact);
  const double magnitude = std::abs(nearest), next = std::nextafter(std::abs(nearest), INFINITY);
  return std::abs(actual - exact) / (next - magnitude);
}

TEST(RowMath, ExponentialIsWithinTwoUlp) {
  std::vector<float> x;
  for (float v = -87.0f; v < 88.7f; v += 0.00037f) x.push_back(v);
  for (const auto& math : levels()) {
    std::vector<float> y(x.size());
    math.exp(x.data(), y.data(), static_cast<int64_t>(x.size()));
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, ulps(y[i], std::exp(static_cast<double>(x[i]))));
    EXPECT_LE(worst, 2.0);
    math.silu(x.data(), y.data(), static_cast<int64_t>(x.size()));
    worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double v = x[i], exact = v / (1 + std::exp(-v));
      if (std::abs(exact) > std::numeric_limits<float>::min()) worst = std::max(worst, ulps(y[i], exact));
    }
    EXPECT_LE(worst, 4.0);
  }
}

TEST(RowMath, ExponentialAtTheEnds) {
  const float x[] = {-INFINITY, -200.0f, -103.0f, -88.0f, 0.0f, 88.8f, 1000.0f, INFINITY, NAN};
  for (const auto& math : levels()) {
    float y[9];
    math.exp(x, y, 9);
    EXPECT_EQ(y[0], 0.0f);
    EXPECT_EQ(y[1], 0.0f);
    EXPECT_NEAR(y[2], std::exp(-103.0), 1.5e-45);  // a subnormal
    EXPECT_NEAR(y[3] / std::exp(-88.0), 1.0, 1e-5);
    EXPECT_EQ(y[4], 1.0f);
    EXPECT_TRUE(std::isinf(y[5]) && std::isinf(y[6]) && std::isinf(y[7]));
    EXPECT_TRUE(std::isnan(y[8]));
  }
}

TEST(RowMath, LevelsAgreeAroundVectorWidths) {
  const auto tables = levels();
  const RowMath<float>& plain = tables[0];
  for (int64_t n : {1, 2, 15, 16, 17, 31, 32, 33, 64, 100, 3072}) {
    const std::vector<float> a = random(n, 1), b = random(n, 2), c = random(n, 3);
    for (size_t level = 1; level < tables.size(); ++level) {
      const RowMath<float>& math = tables[level];
      SCOPED_TRACE(::testing::Message() << "level " << level << ", n = " << n);
      // Rows end in a guard that nothing may touch.
      const auto compare = [&](auto&& call) {
        std::vector<float> expected(static_cast<size_t>(n) + 1, 42.0f), actual = expected;
        call(plain, expected.data());
        call(math, actual.data());
        EXPECT_EQ(actual.back(), 42.0f);
        for (size_t i = 0; i < expected.size(); ++i)
          EXPECT_NEAR(actual[i], expected[i], 1e-6 * (1 + std::abs(expected[i]))) << "at " << i;
      };
      const auto compare_sum = [&](float expected, float actual) {
        EXPECT_NEAR(actual, expected, 1e-6 * (std::sqrt(static_cast<double>(n)) + std::abs(expected)));
      };
      const float *pa = a.data(), *pb = b.data(), *pc = c.data();
      compare([&](const auto& m, float* y) { m.add(pa, pb, y, n); });
      compare([&](const auto& m, float* y) { m.sub(pa, pb, y, n); });
      compare([&](const auto& m, float* y) { m.mul(pa, pb, y, n); });
      compare([&](const auto& m, float* y) { m.scale(pa, y, 1.5f, -0.25f, n); });
      compare([&](const auto& m, float* y) { m.affine(pa, pb, pc, y, n); });
      compare([&](const auto& m, float* y) { m.affine_silu(pa, pb, pc, y, n); });
      compare([&](const auto& m, float* y) { m.axpy(0.5f, pa, y, n); });
      compare([&](const auto& m, float* y) { m.swiglu(pa, pb, y, n); });
      compare([&](const auto& m, float* y) { m.silu(pa, y, n); });
      compare([&](const auto& m, float* y) { m.normalise(pa, 0.1f, 0.7f, y, n); });
      compare([&](const auto& m, float* y) { m.modulate(pa, 0.1f, 0.7f, pb, pc, y, n); });
      compare([&](const auto& m, float* y) { m.weigh(pa, 0.7f, pb, y, n); });
      compare([&](const auto& m, float* y) { m.add_deviation(pa, pb, y, n); });
      if (n % 2 == 0) {
        compare([&](const auto& m, float* y) { m.rotate_neighbours(pa, pb, pc, y, n); });
        compare([&](const auto& m, float* y) { m.rotate_halves(pa, pb, pc, y, n); });
      }
      compare([&](const auto& m, float* y) { m.exp_sum(pa, 0.5f, y, n); });
      std::vector<float> scratch(static_cast<size_t>(n));
      compare_sum(plain.exp_sum(pa, 0.5f, scratch.data(), n), math.exp_sum(pa, 0.5f, scratch.data(), n));
      compare_sum(plain.sum(pa, n), math.sum(pa, n));
      compare_sum(plain.dot(pa, pb, n), math.dot(pa, pb, n));
      compare_sum(plain.deviation(pa, 0.1f, n), math.deviation(pa, 0.1f, n));
      EXPECT_EQ(plain.max(pa, n), math.max(pa, n));
      EXPECT_EQ(plain.sum(pa, n), math.sum(pa, n));  // the same order, and no product that could be fused
    }
  }
}

}  // namespace
}  // namespace flux2::cpu
