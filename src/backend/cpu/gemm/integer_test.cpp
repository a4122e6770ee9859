// Products of int8, with a scale a row and with a scale a block, against the sums they stand for.
#include <cstring>

#include "backend/cpu/gemm/driver.h"
#include "backend/cpu/gemm/panels.h"
#include "backend/cpu/gemm/quantised_rows.h"
#include "backend/cpu/gemm/test_values.h"

namespace flux2::gemm {
namespace {

std::vector<int8_t> bytes(int64_t count, uint32_t seed, int least) {
  std::vector<int8_t> values(static_cast<size_t>(count));
  uint32_t state = seed * 2654435761u + 1;
  for (int8_t& v : values)
    v = static_cast<int8_t>(std::max<int>(least, static_cast<int8_t>((state = state * 1664525u + 1013904223u) >> 24)));
  return values;
}

const std::vector<Extents> kAwkward = {{1, 1, 1},     {1, 13, 3},     {2, 5, 7},     {3, 12, 8},      {4, 11, 9},
                                       {5, 24, 31},   {6, 25, 32},    {7, 5, 33},    {8, 12, 64},     {9, 13, 127},
                                       {31, 29, 400}, {33, 65, 3072}, {67, 211, 97}, {5, 1000, 1601}, {1601, 17, 40}};

class IntegerTest : public ::testing::Test {
 protected:
  std::vector<float> product(const TileKernel& kernel, const PanelSource& a, const PanelSource& b, const Extents& e,
                             int threads) {
    ThreadPool pool(threads);
    std::vector<float> y(static_cast<size_t>(e.m * e.n), NAN);
    multiply(kernel, a, b, e, {y.data(), DType::F32, e.n}, {pool, *stream_});
    return y;
  }

  std::vector<float> product(const MicroKernel<int8_t>& kernel, const int8_t* a, const int8_t* b, const Extents& e, int threads) {
    const MatrixRows<int8_t> rows_a(a, DType::I8, e.k), rows_b(b, DType::I8, e.k);
    return product(kernel, RowPanels<int8_t>(rows_a, kernel.pack_a, kernel.mr),
                   RowPanels<int8_t>(rows_b, kernel.pack_b, kernel.nr), e, threads);
  }

  std::vector<float> product(const BlockKernel& kernel, const int8_t* a, const Tensor& w, const Extents& e, int threads) {
    const MatrixRows<int8_t> rows_a(a, DType::I8, e.k);
    return product(kernel, RowPanels<int8_t>(rows_a, kernel.pack_a, kernel.mr), BlockPanels(w, kernel), e, threads);
  }

  std::shared_ptr<Stream> stream_ = open_cpu()->open_stream();
  const std::vector<const MicroKernel<int8_t>*> int8_ = int8_kernels(CpuFeatures::detect());
  const std::vector<const BlockKernel*> blocks_ = block_kernels(CpuFeatures::detect());
};

TEST_F(IntegerTest, SumsOfInt8AreExact) {
  for (const auto* kernel : int8_)
    for (const Extents& e : kAwkward) {
      const auto a = bytes(e.m * e.k, 1, -127), b = bytes(e.n * e.k, 2, -128);
      const auto y = product(*kernel, a.data(), b.data(), e, 2);
      for (int64_t i = 0; i < e.m; ++i)
        for (int64_t j = 0; j < e.n; ++j) {
          int32_t sum = 0;
          for (int64_t l = 0; l < e.k; ++l) sum += a[static_cast<size_t>(i * e.k + l)] * b[static_cast<size_t>(j * e.k + l)];
          ASSERT_EQ(y[static_cast<size_t>(i * e.n + j)], static_cast<float>(sum))
              << kernel->name << " [" << i << ", " << j << "] of " << e.m << " x " << e.n << " x " << e.k;
        }
    }
}

TEST_F(IntegerTest, TheLargestSumsDoNotOverflow) {
  const Extents e = {2, 3, 12288};
  const std::vector<int8_t> a(static_cast<size_t>(e.m * e.k), int8_t{127}), b(static_cast<size_t>(e.n * e.k), int8_t{-128});
  for (const auto* kernel : int8_)
    for (float v : product(*kernel, a.data(), b.data(), e, 1)) EXPECT_EQ(v, static_cast<float>(-127 * 128 * e.k)) << kernel->name;
}

TEST_F(IntegerTest, BlocksAreScaledOneByOne) {
  for (const auto* kernel : blocks_)
    for (DType dtype : {DType::Q8_0, DType::Q4_0})
      for (Extents e : kAwkward) {
        e.k = round_up(e.k, 32);
        const auto a = bytes(e.m * e.k, 1, -127);
        const Tensor w = block_weight(dtype, e.n, e.k);
        const auto ws = weight_values(w), y = product(*kernel, a.data(), w, e, 2);
        // A kernel may round each block to a step of its integers; those errors are a random walk too.
        const double steps = largest_block_scale(dtype) * std::sqrt(static_cast<double>(e.k / 32));
        Agreement agreement;
        for (int64_t i = 0; i < e.m; ++i)
          for (int64_t j = 0; j < e.n; ++j) {
            Sum sum;
            for (int64_t l = 0; l < e.k; ++l) sum.add(a[static_cast<size_t>(i * e.k + l)], ws[static_cast<size_t>(j * e.k + l)]);
            agreement.see(y[static_cast<size_t>(i * e.n + j)], sum.value, sum.tolerance() + steps, fmt::format("[{}, {}]", i, j));
          }
        agreement.expect(fmt::format("{}, {}: {} x {} x {}", kernel->name, name_of(dtype), e.m, e.n, e.k));
      }
}

// The largest sum of a block is exact whatever the kernel starts its integers from.
TEST_F(IntegerTest, FullBlocksAreExact) {
  for (const auto* kernel : blocks_)
    for (int sign : {1, -1}) {
      const std::vector<int8_t> a(64, int8_t{127});
      std::vector<BlockQ8_0> blocks(2);
      for (BlockQ8_0& b : blocks) b.scale = to_f16(0.5f), std::memset(b.q, sign > 0 ? 127 : -128, sizeof b.q);
      const Tensor w = Tensor::host_copy(blocks.data(), DType::Q8_0, {1, 64});
      const int each = sign > 0 ? 127 : -128;
      EXPECT_EQ(product(*kernel, a.data(), w, {1, 1, 64}, 1)[0], 0.5f * 127 * static_cast<float>(each) * 64) << kernel->name;
    }
}

TEST_F(IntegerTest, ResultsDependOnNeitherThreadsNorOtherRows) {
  const Extents e = {53, 203, 3200};
  const auto a = bytes(e.m * e.k, 3, -127);
  const Tensor w = block_weight(DType::Q8_0, e.n, e.k);
  for (const auto* kernel : blocks_) {
    const auto all = product(*kernel, a.data(), w, e, 1);
    for (int threads : {2, 5}) EXPECT_EQ(product(*kernel, a.data(), w, e, threads), all) << kernel->name;
    for (int64_t row : {0, 7, 8, 52}) {
      const auto alone = product(*kernel, a.data() + row * e.k, w, {1, e.n, e.k}, 2);
      EXPECT_EQ(alone, std::vector<float>(all.begin() + row * e.n, all.begin() + (row + 1) * e.n))
          << kernel->name << ", row " << row;
    }
  }
}

TEST(QuantisedRows, RoundsToTheNearestStep) {
  const TestCpu s(Profile::Fast);
  // Steps of 1: ties go to the even neighbour.
  const std::vector<float> values = {127, -127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 0.49f, -126.6f, 0};
  const Tensor x = Tensor::from<float>(*s.stream, DType::F32, {1, 10}, values);
  ThreadPool pool(1);
  const QuantisedRows rows(x, {pool, *s.stream});
  EXPECT_EQ(rows.scales()[0], 1.0f);
  int8_t scratch[10];
  const int8_t* q;
  rows.rows(0, 1, 0, 10, &q, scratch);
  EXPECT_EQ(std::vector<int>(q, q + 10), (std::vector<int>{127, -127, 0, 2, 2, 0, -2, 0, -127, 0}));
  rows.rows(0, 1, 3, 2, &q, scratch);
  EXPECT_EQ(std::vector<int>(q, q + 2), (std::vector<int>{2, 2}));
}

TEST(QuantisedRows, KeepsEveryValueWithinHalfAStep) {
  const TestCpu s(Profile::Fast);
  for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    const Tensor x = noise(*s.stream, dtype, {9, 2500}, 1);
    ThreadPool pool(2);
    const QuantisedRows rows(x, {pool, *s.stream});
    const auto values = x.to_floats();
    std::vector<int8_t> scratch(9 * 2500);
    const int8_t* q[9];
    rows.rows(0, 9, 0, 2500, q, scratch.data());
    for (size_t r = 0; r < 9; ++r)
      for (size_t i = 0; i < 2500; ++i)
        ASSERT_NEAR(static_cast<float>(q[r][i]) * rows.scales()[r], values[r * 2500 + i], 0.5001f * rows.scales()[r]);
  }
}

TEST(QuantisedRows, ZerosStayZeroAndNaNIsNotHidden) {
  const TestCpu s(Profile::Fast);
  std::vector<float> values(5 * 70, 0.25f);
  std::fill_n(values.begin(), 70, 0.0f);
  values[70 + 33] = NAN;
  values[140 + 69] = -INFINITY;
  std::fill_n(values.begin() + 210, 70, 1e-41f);
  const Tensor x = Tensor::from<float>(*s.stream, DType::F32, {5, 70}, values);
  ThreadPool pool(2);
  const QuantisedRows rows(x, {pool, *s.stream});
  std::vector<int8_t> scratch(70);
  const int8_t* q;
  rows.rows(0, 1, 0, 70, &q, scratch.data());
  for (int i = 0; i < 70; ++i) EXPECT_EQ(q[i], 0);
  EXPECT_TRUE(std::isfinite(rows.scales()[0]));
  EXPECT_TRUE(std::isnan(rows.scales()[1]));
  EXPECT_TRUE(std::isnan(rows.scales()[2]));
  EXPECT_TRUE(std::isfinite(rows.scales()[3]));
  EXPECT_EQ(rows.scales()[4], 0.25f / 127.0f);
}

}  // namespace
}  // namespace flux2::gemm
