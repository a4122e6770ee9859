#include "backend/cpu/gemm/driver.h"

#include <cstring>

#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/test_values.h"

namespace flux2::gemm {
namespace {

class DriverTest : public ::testing::Test {
 protected:
  template <class T>
  std::vector<float> product(const MicroKernel<T>& kernel, const std::vector<float>& a, const std::vector<float>& b,
                             const Extents& e, int threads, const float* bias = nullptr) {
    ThreadPool pool(threads);
    std::vector<float> y(static_cast<size_t>(e.m * e.n), NAN);
    multiply(kernel, MatrixRows<T>(a.data(), DType::F32, e.k), MatrixRows<T>(b.data(), DType::F32, e.k), e,
             {y.data(), DType::F32, e.n, bias}, {pool, *stream_});
    return y;
  }

  template <class T>
  void check_against_double(const MicroKernel<T>& kernel, const Extents& e) {
    SCOPED_TRACE(kernel.name);
    auto a = noise(e.m * e.k, 1), b = noise(e.n * e.k, 2);
    const auto bias = noise(e.n, 3);
    const auto y = product(kernel, a, b, e, 2, bias.data());
    if (std::is_same_v<T, bf16>) a = rounded_to_bf16(a), b = rounded_to_bf16(b);
    Agreement agreement;
    for (int64_t i = 0; i < e.m; ++i)
      for (int64_t j = 0; j < e.n; ++j) {
        Sum sum;
        for (int64_t k = 0; k < e.k; ++k) sum.add(a[static_cast<size_t>(i * e.k + k)], b[static_cast<size_t>(j * e.k + k)]);
        sum.add(bias[static_cast<size_t>(j)], 1);
        agreement.see(y[static_cast<size_t>(i * e.n + j)], sum.value, sum.tolerance(), fmt::format("[{}, {}]", i, j));
      }
    agreement.expect(fmt::format("{} x {} x {}", e.m, e.n, e.k));
  }

  // Every micro-kernel this machine runs.
  template <class F>
  void for_each_kernel(const F& f) {
    for (const auto* kernel : f32_kernels(features_)) f(*kernel);
    for (const auto* kernel : bf16_kernels(features_)) f(*kernel);
  }

  const CpuFeatures features_ = CpuFeatures::detect();
  std::shared_ptr<Stream> stream_ = open_cpu()->open_stream();
};

TEST_F(DriverTest, AgreesWithDoubleOnAwkwardExtents) {
  for_each_kernel([&](const auto& kernel) {
    for (int64_t k : {1, 3, 31, 32, 33, 400, 3072})
      for (const auto& [m, n] : {std::pair{1, 1}, {1, 13}, {7, 5}, {8, 12}, {9, 13}, {31, 29}})
        check_against_double(kernel, {m, n, k});
    check_against_double(kernel, {67, 211, 97});
    check_against_double(kernel, {1601, 17, 40});  // several parts of the rows
    check_against_double(kernel, {5, 1000, 769});  // several strips and blocks of K with a tail
  });
}

TEST_F(DriverTest, NoTermsLeaveTheBias) {
  for_each_kernel([&](const auto& kernel) { check_against_double(kernel, {3, 5, 0}); });
}

TEST_F(DriverTest, EmptyResultsAreNotWritten) {
  for_each_kernel([&](const auto& kernel) {
    EXPECT_TRUE(product(kernel, {}, noise(40, 1), {0, 4, 10}, 2).empty());
    EXPECT_TRUE(product(kernel, noise(40, 1), {}, {4, 0, 10}, 2).empty());
  });
}

// Several chunks of packed rows: K is long enough that 24 MB do not hold all of them.
TEST_F(DriverTest, ManyChunksOfRows) {
  for_each_kernel([&](const auto& kernel) { check_against_double(kernel, {1700, 3, 12288}); });
}

TEST_F(DriverTest, ResultsDoNotDependOnThreads) {
  for_each_kernel([&](const auto& kernel) {
    const Extents e = {301, 203, 1000};
    const auto a = noise(e.m * e.k, 4), b = noise(e.n * e.k, 5);
    const auto one = product(kernel, a, b, e, 1);
    for (int threads : {2, 3, 7}) EXPECT_EQ(product(kernel, a, b, e, threads), one) << kernel.name << ", " << threads;
  });
}

TEST_F(DriverTest, ARowIsTheSameBitsInAnyBatch) {
  for_each_kernel([&](const auto& kernel) {
    const Extents all = {53, 37, 1153};
    const auto a = noise(all.m * all.k, 6), b = noise(all.n * all.k, 7);
    const auto together = product(kernel, a, b, all, 2);
    for (int64_t row : {0, 1, 7, 8, 29, 52})
      for (int64_t m : {1, 2, 5}) {
        if (row + m > all.m) continue;
        const std::vector<float> part(a.begin() + row * all.k, a.begin() + (row + m) * all.k);
        const auto alone = product(kernel, part, b, {m, all.n, all.k}, 2);
        const std::vector<float> same(together.begin() + row * all.n, together.begin() + (row + m) * all.n);
        EXPECT_EQ(alone, same) << kernel.name << ": rows " << row << " + " << m;
      }
  });
}

}  // namespace
}  // namespace flux2::gemm
