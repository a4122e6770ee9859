#include <algorithm>
#include <limits>

#include "backend/cuda/cuda_test.h"
#include "backend/cuda/kernels/parts.h"

// Activations quantised to e4m3 and int8, products in them, and weights that are dequantised for a product.
namespace flux2 {

namespace {

using Values = std::vector<double>;

class CudaEightBitTest : public CudaTest, public testing::WithParamInterface<DType> {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped() && !stream->device().multiplies(stored)) GTEST_SKIP() << "this GPU does not multiply " << name_of(stored);
  }

  const DType stored = GetParam();
  const float range = stored == DType::I8 ? 127.0f : 448.0f;  // the largest stored value

  // Rows of 8 bits whose every byte shows when it was not written: NaN, or -128.
  Tensor blank_rows(const Shape& shape) {
    const Tensor y = Tensor::empty(*stream, stored, shape);
    std::vector<uint8_t> bytes(at(y.numel()), stored == DType::I8 ? 0x80 : 0x7f);
    stream->upload(y.raw(), bytes.data(), bytes.size());
    return y.with_scales(blank(shape.first(shape.rank() - 1), DType::F32));
  }
  std::vector<uint8_t> bytes_of(const Tensor& t) {
    std::vector<uint8_t> bytes(at(t.numel()));
    stream->download(bytes.data(), t.raw(), bytes.size());
    return bytes;
  }
  void expect_same(const Tensor& a, const Tensor& b, const std::string& what) {
    EXPECT_EQ(a.scales().to_floats(), b.scales().to_floats()) << what;
    EXPECT_EQ(bytes_of(a), bytes_of(b)) << what;
  }
  Tensor rounded(const Tensor& x) {
    const Tensor y = blank_rows(x.shape());
    kernels().quantise({x, y});
    return y;
  }
};

// The e4m3 number nearest to v, the even one of two.
uint8_t nearest_e4m3(float v) {
  static const std::vector<float> values = [] {
    std::vector<float> all;
    for (int code = 0; code < 0x7f; ++code) all.push_back(e4m3_to_float(static_cast<uint8_t>(code)));
    return all;
  }();
  const float magnitude = std::min(std::abs(v), 448.0f);
  auto above = std::lower_bound(values.begin(), values.end(), magnitude) - values.begin();
  if (above > 0) {
    const float up = values[at(above)] - magnitude, down = magnitude - values[at(above - 1)];
    if (down < up || (down == up && above % 2 == 1)) --above;
  }
  return static_cast<uint8_t>(above | (std::signbit(v) ? 0x80 : 0));
}

// The stored byte nearest to v.
uint8_t nearest(DType stored, float v) {
  return stored == DType::I8 ? static_cast<uint8_t>(static_cast<int8_t>(std::nearbyint(v))) : nearest_e4m3(v);
}

Values product(const Values& x, const Values& w, int64_t m, int64_t n, int64_t k) {
  Values y(at(m * n), 0.0);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t l = 0; l < k; ++l) y[at(i * n + j)] += x[at(i * k + l)] * w[at(j * k + l)];
  return y;
}

// Stored values times the factors of their rows.
Values values_of(const Tensor& t) {
  Values values = t.with_scales({}).to_doubles();
  const auto factors = t.scales().defined() ? t.scales().to_floats() : std::vector<float>{1.0f};
  for (size_t i = 0; i < values.size(); ++i)
    values[i] *= static_cast<double>(factors[factors.size() == 1 ? 0 : i / at(t.dim(-1))]);
  return values;
}

double relative_error(const Values& a, const Values& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) difference += (a[i] - b[i]) * (a[i] - b[i]), size += b[i] * b[i];
  return std::sqrt(difference / size);
}

TEST_P(CudaEightBitTest, QuantiseRoundsToNearest) {
  for (int64_t columns : {1, 8, 21, 3072, 4096, 9216, 12288, 16384, 20000}) {
    const Tensor wide = random({3, columns + 8}, DType::BF16), x = wide.narrowed(1, 8, columns);
    const std::vector<float> xs = x.to_floats();
    const Tensor y = rounded(x);
    const auto scales = y.scales().to_floats();
    const auto codes = bytes_of(y);
    for (size_t row = 0; row < 3; ++row) {
      float largest = 0;
      for (size_t c = 0; c < at(columns); ++c) largest = std::max(largest, std::abs(xs[row * at(columns) + c]));
      ASSERT_EQ(scales[row], largest / range) << columns;
      for (size_t c = 0; c < at(columns); ++c) {
        const size_t i = row * at(columns) + c;
        ASSERT_EQ(codes[i], nearest(stored, xs[i] * (range / largest))) << columns << ": " << xs[i] << " in row " << row;
      }
    }
  }
}

TEST_P(CudaEightBitTest, NanAndInfinityShow) {
  std::vector<float> values(4 * 16, 1.0f);
  std::fill(values.begin(), values.begin() + 16, 0.0f);
  values[16 + 3] = std::numeric_limits<float>::quiet_NaN();
  values[32 + 3] = std::numeric_limits<float>::infinity();
  const Tensor y = rounded(Tensor::from(*stream, DType::BF16, {4, 16}, std::span<const float>(values)));
  const auto rows = y.with_scales({}).to_floats();
  const auto scales = y.scales().to_floats();
  EXPECT_EQ(scales[0], 0.0f);
  EXPECT_EQ(rows[0], 0.0f);
  EXPECT_TRUE(std::isnan(rows[16 + 3] * scales[1]));
  EXPECT_TRUE(std::isnan(rows[32 + 3] * scales[2]));
  EXPECT_NEAR(rows[48] * scales[3], 1.0f, 1e-6f);
}

TEST_P(CudaEightBitTest, QuantiseSwigluIsItsSteps) {
  for (const auto& [head, hidden] :
       {std::pair<int64_t, int64_t>{3072, 9216}, {0, 9216}, {64, 40}, {0, 21}, {4096, 12288}, {5, 16}}) {
    const int64_t rows = 7;
    const Tensor x = random({rows, std::max<int64_t>(head, 1)}, DType::BF16), u = random({rows, 2 * hidden}, DType::BF16);
    const Tensor gate = u.narrowed(1, 0, hidden), up = u.narrowed(1, hidden, hidden);
    const Tensor y = blank_rows({rows, head + hidden}), plain = blank({rows, head + hidden}, DType::BF16);
    kernels().quantise_swiglu({head > 0 ? &x : nullptr, gate, up, y});
    if (head > 0) plain.narrowed(1, 0, head).copy_from(x);
    kernels().swiglu({gate, up, plain.narrowed(1, head, hidden)});
    expect_same(y, rounded(plain), fmt::format("{} beside {}", head, hidden));
  }
}

TEST_P(CudaEightBitTest, NormsEndInEightBits) {
  for (const Shape& shape : {Shape{2, 5, 3072}, {1, 2000, 3072}, {1, 1100, 4096}, {3, 4, 24}, {1, 3, 21}, {1, 2, 20000}}) {
    const std::string what = fmt::format("{}", shape);
    const Shape vector = shape.with(1, 1), matrix{shape[0] * shape[1], shape[2]};
    const auto bf16 = [&](const Shape& s) { return random(s, DType::BF16); };
    const Tensor x = bf16(shape), z = bf16(shape), gate = bf16(vector), shift = bf16(vector), scale = bf16(vector),
                 weight = bf16({shape[2]});
    const Tensor plain = blank(shape, DType::BF16), y = blank_rows(shape), flat = y.reshaped(matrix);
    kernels().modulated_norm({x, shift, scale, plain, 1e-6f});
    kernels().modulated_norm({x, shift, scale, y, 1e-6f});
    expect_same(flat, rounded(plain.reshaped(matrix)), "modulated_norm " + what);

    kernels().rms_norm({x, weight, plain, 1e-6f});
    kernels().rms_norm({x, weight, y, 1e-6f});
    expect_same(flat, rounded(plain.reshaped(matrix)), "rms_norm " + what);

    const Tensor sum = blank(shape, DType::BF16), same_sum = blank(shape, DType::BF16);
    kernels().gated_add_norm({x, gate, z, shift, scale, sum, plain, 1e-6f});
    kernels().gated_add_norm({x, gate, z, shift, scale, same_sum, y, 1e-6f});
    EXPECT_EQ(sum.to_floats(), same_sum.to_floats()) << what;
    expect_same(flat, rounded(plain.reshaped(matrix)), "gated_add_norm " + what);
  }
}

TEST_P(CudaEightBitTest, Product) {
  struct Case {
    int64_t m, n, k;
  };
  for (const auto& [m, n, k] : {Case{1, 16, 16}, {77, 48, 128}, {130, 272, 1040}, {64, 256, 3072}, {5, 24, 32}, {3, 16, 40}}) {
    const Tensor x = random({m, k}, DType::BF16);
    const Tensor w = rounded(random({n, k}, DType::BF16, 0.02));
    const Tensor one = Tensor::from(*stream, DType::F32, {1}, std::span<const float>(std::vector<float>{0.125f}));
    for (const Tensor& weight : {w, w.with_scales(one), w.with_scales({})}) {
      const std::string what = fmt::format("{} {}x{}x{}, scales {}", name_of(stored), m, n, k,
                                           weight.scales().defined() ? weight.scales().numel() : 0);
      const Tensor wide = blank({m, n + 16}, DType::BF16), y = wide.narrowed(1, 16, n), again = blank({m, n}, DType::BF16);
      const Tensor quantised = rounded(x);
      kernels().linear({quantised, weight, nullptr, y});
      const Values wanted = product(values_of(quantised), values_of(weight), m, n, k);
      EXPECT_LE(relative_error(y.to_doubles(), wanted), 5e-3) << what;
      for (double v : wide.narrowed(1, 0, 16).to_doubles()) ASSERT_EQ(v, 12352.0) << what << ": written outside";
      // Rounding inside the product is the same, where the sizes allow it; else nothing is rounded.
      kernels().linear({x, weight, nullptr, again});
      const bool in_8_bits = m > 1 && n % 16 == 0 && k % 16 == 0;  // one row is multiplied as it is
      const Values exact = in_8_bits ? wanted : product(x.to_doubles(), values_of(weight), m, n, k);
      EXPECT_LE(relative_error(again.to_doubles(), exact), 5e-3) << what << ", from BF16";
    }
    const Tensor bias = random({n}, DType::BF16), y = blank({m, n}, DType::BF16);
    kernels().linear({x, w, &bias, y});
    Values wanted = product(x.to_doubles(), values_of(w), m, n, k);
    const Values b = bias.to_doubles();
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] += b[i % at(n)];
    EXPECT_LE(relative_error(y.to_doubles(), wanted), 1e-2) << "with a bias";
  }
}

// GPUs whose product takes no scales of rows compute fp8 in this way, too. More rows than fit at a time.
TEST_P(CudaEightBitTest, ProductBySums) {
  const int64_t k = 64, n = 32768, m = 2 * rows_of_sums(1 << 20, n) + 3;
  const Tensor x = rounded(random({m, k}, DType::BF16)), w = rounded(random({n, k}, DType::BF16, 0.02));
  const Tensor y = blank({m, n}, DType::BF16);
  cuda::eight_bit_product_by_sums({x, w, nullptr, y});
  for (int64_t row : {int64_t{0}, m / 2, m - 1}) {
    const Values wanted = product(values_of(x.narrowed(0, row, 1)), values_of(w), 1, n, k);
    EXPECT_LE(relative_error(y.narrowed(0, row, 1).to_doubles(), wanted), 5e-3) << row;
  }
}

TEST_P(CudaEightBitTest, CapturedProductsGiveTheSameBytes) {
  const Tensor x = random({300, 512}, DType::BF16), w = rounded(random({768, 512}, DType::BF16, 0.05));
  const Tensor y = blank({300, 768}, DType::BF16);
  const auto graph = stream->capture([&] { kernels().linear({x, w, nullptr, y}); });
  const auto first = y.to_floats();
  y.fill(0.0);
  graph->replay();
  EXPECT_EQ(y.to_floats(), first);
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaEightBitTest, testing::Values(DType::F8_E4M3, DType::I8),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

class CudaEightBitGradientTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped() && !stream->device().multiplies(DType::F8_E4M3)) GTEST_SKIP() << "this GPU does not multiply fp8";
  }
  Tensor quantised_weight(int64_t n, int64_t k) {
    const Tensor w = Tensor::empty(*stream, DType::F8_E4M3, {n, k}).with_scales(blank({n}, DType::F32));
    // Rows of different sizes, so that a scale in the wrong place shows.
    std::vector<float> values = random({n, k}, DType::F32, 0.02).to_floats();
    for (size_t i = 0; i < values.size(); ++i) values[i] *= static_cast<float>(1 + i / at(k) % 5);
    kernels().quantise({Tensor::from(*stream, DType::BF16, {n, k}, std::span<const float>(values)), w});
    return w;
  }
  // dY · W in double precision.
  static Values gradient(const Values& dy, const Values& w, int64_t m, int64_t n, int64_t k) {
    Values dx(at(m * k), 0.0);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t l = 0; l < n; ++l)
        for (int64_t j = 0; j < k; ++j) dx[at(i * k + j)] += dy[at(i * n + l)] * w[at(l * k + j)];
    return dx;
  }
};

TEST_F(CudaEightBitGradientTest, TransposesEveryByte) {
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{16, 16}, {128, 128}, {48, 272}, {1040, 144}, {32, 3072}, {512, 16}}) {
    std::vector<uint8_t> bytes(at(n * k));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
    const Tensor x = Tensor::empty(*stream, DType::U8, {n, k}), y = Tensor::empty(*stream, DType::U8, {k, n});
    stream->upload(x.raw(), bytes.data(), bytes.size());
    cuda::transpose_bytes(x, y);
    std::vector<uint8_t> turned(bytes.size());
    stream->download(turned.data(), y.raw(), turned.size());
    for (size_t i = 0; i < at(n); ++i)
      for (size_t j = 0; j < at(k); ++j)
        ASSERT_EQ(turned[j * at(n) + i], bytes[i * at(k) + j]) << n << "x" << k << " at " << i << ", " << j;
  }
}

TEST_F(CudaEightBitGradientTest, QuantisesWithTheScalesOfTheWeight) {
  for (int64_t columns : {16, 3072, 9216, 12288, 18432, 27648, 36864, 55296}) {
    const Tensor wide = random({3, columns + 8}, DType::BF16), dy = wide.narrowed(1, 8, columns);
    std::vector<float> s(at(columns));
    for (size_t i = 0; i < s.size(); ++i) s[i] = 0.001f * static_cast<float>(1 + i % 11);
    const Tensor factors = Tensor::from(*stream, DType::F32, {columns}, std::span<const float>(s));
    const Tensor y = Tensor::empty(*stream, DType::F8_E4M3, dy.shape()).with_scales(blank({3}, DType::F32));
    cuda::quantise_gradient({dy, factors, y});
    Values wanted = dy.to_doubles();
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] *= static_cast<double>(s[i % at(columns)]);
    EXPECT_LE(relative_error(values_of(y), wanted), 3.5e-2) << columns;
    const auto scales = y.scales().to_floats();
    for (size_t row = 0; row < 3; ++row) {
      double largest = 0;
      for (size_t c = 0; c < at(columns); ++c) largest = std::max(largest, std::abs(wanted[row * at(columns) + c]));
      EXPECT_NEAR(scales[row], largest / 448, 5e-3 * largest / 448) << columns;
    }
  }
}

TEST_F(CudaEightBitGradientTest, ProductIsNearTheExactOne) {
  struct Case {
    int64_t m, n, k;
  };
  for (const auto& [m, n, k] : {Case{1, 16, 16}, {77, 48, 128}, {130, 272, 1040}, {64, 3072, 256}, {5, 27648, 64}, {9, 24, 40}}) {
    const Tensor dy = random({m, n}, DType::BF16, 1e-6), w = quantised_weight(n, k);
    const Tensor one = Tensor::from(*stream, DType::F32, {1}, std::span<const float>(std::vector<float>{0.125f}));
    for (const Tensor& weight : {w, w.with_scales(one), w.with_scales({})}) {
      const Tensor wide = blank({m, k + 16}, DType::BF16), dx = wide.narrowed(1, 16, k);
      kernels().linear_grad_input({dy, weight, dx});
      const double error = relative_error(dx.to_doubles(), gradient(dy.to_doubles(), values_of(weight), m, n, k));
      // Shapes that do not fit are computed in bf16.
      EXPECT_LE(error, n % 16 == 0 && k % 16 == 0 ? 4e-2 : 1e-2) << m << "x" << n << "x" << k;
      for (double v : wide.narrowed(1, 0, 16).to_doubles()) ASSERT_EQ(v, 12352.0) << "written outside";
    }
  }
}

TEST_F(CudaEightBitGradientTest, ProductsAddToTheirResult) {
  struct Case {
    int64_t m, n, k;
  };
  for (const auto& [m, n, k] : {Case{77, 48, 128}, {130, 272, 1040}, {64, 3072, 256}, {9, 24, 40}}) {
    const std::string what = fmt::format("{}x{}x{}", m, n, k);
    const Tensor w = quantised_weight(n, k), x = random({m, k}, DType::BF16), dy = random({m, n}, DType::BF16);
    const Tensor wide = blank({m, n + 16}, DType::BF16), y = wide.narrowed(1, 16, n), start = random({m, n}, DType::BF16);
    y.copy_from(start);
    const Tensor once = blank({m, n}, DType::BF16);
    kernels().linear({x, w, nullptr, once});
    kernels().product_add({x, w, y, 1.0, true});
    Values wanted = once.to_doubles(), before = start.to_doubles();
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] += before[i];
    EXPECT_LE(relative_error(y.to_doubles(), wanted), 8e-3) << what;
    for (double v : wide.narrowed(1, 0, 16).to_doubles()) ASSERT_EQ(v, 12352.0) << what << ": written outside";

    const Tensor dx = random({m, k}, DType::BF16), alone = blank({m, k}, DType::BF16);
    before = dx.to_doubles();
    kernels().linear_grad_input({dy, w, alone});
    kernels().product_add({dy, w, dx, 1.0, false});
    wanted = alone.to_doubles();
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] += before[i];
    EXPECT_LE(relative_error(dx.to_doubles(), wanted), 8e-3) << what;
  }
}

TEST_F(CudaEightBitGradientTest, SumsAreAddedToTheResult) {
  const int64_t m = 33, n = 48, k = 64;
  const Tensor w = Tensor::empty(*stream, DType::I8, {n, k}).with_scales(blank({n}, DType::F32));
  kernels().quantise({random({n, k}, DType::BF16, 0.02), w});
  const Tensor x = random({m, k}, DType::BF16), start = random({m, n}, DType::BF16), y = start.cloned(),
               once = blank({m, n}, DType::BF16);
  kernels().linear({x, w, nullptr, once});
  kernels().product_add({x, w, y, 1.0, true});
  Values wanted = once.to_doubles();
  const Values before = start.to_doubles();
  for (size_t i = 0; i < wanted.size(); ++i) wanted[i] += before[i];
  EXPECT_LE(relative_error(y.to_doubles(), wanted), 8e-3);
}

TEST_F(CudaEightBitGradientTest, ZerosStayAndNanShows) {
  const int64_t n = 32, k = 48;
  std::vector<float> values(4 * n, 1e-3f);
  std::fill(values.begin(), values.begin() + n, 0.0f);
  std::fill(values.begin() + n, values.begin() + 2 * n, 1e-37f);  // 448 divided by it is not finite
  values[2 * n + 3] = std::numeric_limits<float>::quiet_NaN();
  const Tensor dy = Tensor::from(*stream, DType::BF16, {4, n}, std::span<const float>(values)), w = quantised_weight(n, k);
  const Tensor dx = blank({4, k}, DType::BF16);
  kernels().linear_grad_input({dy, w, dx});
  const auto rows = dx.to_floats();
  for (size_t c = 0; c < at(k); ++c) {
    EXPECT_EQ(rows[c], 0.0f);
    EXPECT_EQ(rows[at(k) + c], 0.0f);
    EXPECT_TRUE(std::isnan(rows[2 * at(k) + c]));
    EXPECT_TRUE(std::isfinite(rows[3 * at(k) + c]));
  }
}

class CudaUnpackTest : public CudaTest {};

TEST_F(CudaUnpackTest, WeightsOfOneByteWithTheirFactors) {
  const int64_t m = 6, n = 10;
  for (int64_t k : {64, 21})
    for (DType stored : {DType::I8, DType::F8_E4M3, DType::F8_E5M2})
      for (int64_t factors : {int64_t{0}, int64_t{1}, n}) {
        std::vector<uint8_t> bytes(at(n * k));
        for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>((i * 37) % 0x60 | (i % 2 << 7));
        Tensor w = Tensor::empty(*stream, stored, {n, k});
        stream->upload(w.raw(), bytes.data(), bytes.size());
        if (factors > 0) {
          std::vector<float> values(at(factors));
          for (size_t i = 0; i < values.size(); ++i) values[i] = 0.01f * static_cast<float>(i + 3);
          w = w.with_scales(Tensor::from(*stream, DType::F32, {factors}, std::span<const float>(values)));
        }
        for (DType t : {DType::F32, DType::BF16}) {
          const Tensor x = random({m, k}, t), y = blank({m, n}, t);
          const Tensor bias = Tensor::from(*stream, t, {n}, std::span<const float>(std::vector<float>(at(n), 0.0f)));
          kernels().linear({x, w, &bias, y});  // a product with a bias is not made in 8 bits
          const Values wanted = product(x.to_doubles(), values_of(w), m, n, k);
          EXPECT_LE(relative_error(y.to_doubles(), wanted), t == DType::BF16 ? 8e-3 : 1e-6)
              << name_of(stored) << ", " << factors << " factors, " << name_of(t) << ", " << k;
        }
      }
}

}  // namespace

}  // namespace flux2
