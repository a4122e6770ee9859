#include <algorithm>
#include <limits>

#include "backend/cuda/cuda_test.h"
#include "backend/cuda/kernels/parts.h"

// Attention whose operands are rounded to e4m3.
namespace flux2 {

namespace {

constexpr int64_t kWidth = 128;

struct Case {
  int64_t batch, queries, keys, heads, key_heads;
  std::string text() const {
    return fmt::format("batch {} queries {} keys {} heads {}/{}", batch, queries, keys, heads, key_heads);
  }
};

// 1 and few, whole tiles of queries and keys and one more or less, tiles that are divided among blocks and whole rounds of them.
const std::vector<Case> kCases = {{1, 2, 1, 1, 1},       {1, 7, 7, 2, 2},     {1, 127, 191, 2, 2},   {1, 128, 192, 1, 1},
                                  {2, 129, 1000, 4, 2},  {1, 193, 385, 2, 1}, {2, 512, 1000, 6, 3},  {1, 512, 1000, 24, 24},
                                  {1, 4608, 4608, 5, 5}, {1, 77, 4608, 3, 3}, {1, 4608, 700, 24, 24}};

class CudaEightBitAttentionTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped() && !device->attends_in_8_bits()) GTEST_SKIP() << "this GPU or build has no attention in 8 bits";
  }

  Tensor from(const Shape& shape, const std::vector<float>& values) {
    return Tensor::from(*stream, DType::BF16, shape, std::span<const float>(values));
  }

  Tensor attended(const Tensor& q, const Tensor& k, const Tensor& v) {
    const Tensor y = blank(q.shape(), DType::BF16);
    EXPECT_TRUE(cuda::eight_bit_attention_fits({q, k, v, y, nullptr, nullptr, kScale, false, true}));
    kernels().attention({q, k, v, y, nullptr, nullptr, kScale, false, true});
    return y;
  }

  // The error of some rows relative to their size, against float64.
  double error_of(const Case& c, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& y) const {
    const auto qs = q.to_doubles(), ks = k.to_doubles(), vs = v.to_doubles(), ys = y.to_doubles();
    double difference = 0, size = 0;
    const int64_t some = std::min<int64_t>(c.queries, 12);
    std::vector<double> p(at(c.keys)), wanted(at(kWidth));
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t h : {int64_t{0}, c.heads - 1})
        for (int64_t n = 0; n < some; ++n) {
          const int64_t i = some == 1 ? 0 : n * (c.queries - 1) / (some - 1), g = h / (c.heads / c.key_heads);
          const double* query = &qs[at(((b * c.queries + i) * c.heads + h) * kWidth)];
          double top = -std::numeric_limits<double>::infinity(), total = 0;
          for (int64_t j = 0; j < c.keys; ++j) {
            double s = 0;
            for (int64_t d = 0; d < kWidth; ++d) s += query[d] * ks[at(((b * c.keys + j) * c.key_heads + g) * kWidth + d)];
            top = std::max(top, p[at(j)] = s * static_cast<double>(kScale));
          }
          for (double& s : p) total += s = std::exp(s - top);
          std::fill(wanted.begin(), wanted.end(), 0.0);
          for (int64_t j = 0; j < c.keys; ++j)
            for (int64_t d = 0; d < kWidth; ++d)
              wanted[at(d)] += p[at(j)] / total * vs[at(((b * c.keys + j) * c.key_heads + g) * kWidth + d)];
          for (int64_t d = 0; d < kWidth; ++d) {
            const double actual = ys[at(((b * c.queries + i) * c.heads + h) * kWidth + d)];
            difference += std::pow(actual - wanted[at(d)], 2), size += std::pow(wanted[at(d)], 2);
          }
        }
    return std::sqrt(difference / size);
  }

  const float kScale = 1.0f / std::sqrt(static_cast<float>(kWidth));
};

// Each query equals one key of ±1, times 8, and so sees it alone. Then y is that key's value, which e4m3 rounds by 1/16 at most.
// Shows every mistake in the places of rows, heads and channels.
TEST_F(CudaEightBitAttentionTest, AQueryThatSeesOneKeyGetsItsValue) {
  for (const Case& c : kCases) {
    std::vector<float> q(at(c.batch * c.queries * c.heads * kWidth)), k(at(c.batch * c.keys * c.key_heads * kWidth)), v(k.size()),
        wanted(q.size());
    for (float& x : k) x = generator() % 2 == 0 ? 1.0f : -1.0f;
    for (float& x : v) x = (1.0f + static_cast<float>(generator() % 64) / 64.0f) * (generator() % 2 == 0 ? 1.0f : -1.0f);
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t i = 0; i < c.queries; ++i)
        for (int64_t h = 0; h < c.heads; ++h) {
          const auto j = static_cast<int64_t>(generator() % static_cast<uint64_t>(c.keys));
          const int64_t key = ((b * c.keys + j) * c.key_heads + h / (c.heads / c.key_heads)) * kWidth,
                        query = ((b * c.queries + i) * c.heads + h) * kWidth;
          for (int64_t d = 0; d < kWidth; ++d) q[at(query + d)] = 8.0f * k[at(key + d)], wanted[at(query + d)] = v[at(key + d)];
        }
    const Shape keys{c.batch, c.keys, c.key_heads, kWidth};
    const Tensor y = attended(from({c.batch, c.queries, c.heads, kWidth}, q), from(keys, k), from(keys, v));
    expect_close(y, {wanted.begin(), wanted.end()}, 0.08, 0, c.text());
  }
}

TEST_F(CudaEightBitAttentionTest, AgreesWithTheEquation) {
  for (const Case& c : kCases) {
    const Shape keys{c.batch, c.keys, c.key_heads, kWidth};
    const Tensor q = random({c.batch, c.queries, c.heads, kWidth}, DType::BF16), k = random(keys, DType::BF16),
                 v = random(keys, DType::BF16);
    EXPECT_LE(error_of(c, q, k, v, attended(q, k, v)), 0.075) << c.text();
  }
}

// Tiles of very different size: every tile of keys and of values has a scale of its own.
TEST_F(CudaEightBitAttentionTest, TilesHaveScalesOfTheirOwn) {
  const Case c{1, 300, 1000, 2, 2};
  std::normal_distribution<float> normal;
  std::vector<float> k(at(c.keys * c.heads * kWidth)), v(k.size());
  for (size_t i = 0; i < k.size(); ++i) {
    const float size = std::ldexp(1.0f, static_cast<int>(i / at(192 * c.heads * kWidth)) % 3 - 1);
    k[i] = normal(generator) * size, v[i] = normal(generator) / size;
  }
  const Shape keys{1, c.keys, c.heads, kWidth};
  const Tensor q = random({1, c.queries, c.heads, kWidth}, DType::BF16), ks = from(keys, k), vs = from(keys, v);
  EXPECT_LE(error_of(c, q, ks, vs, attended(q, ks, vs)), 0.12);
}

TEST_F(CudaEightBitAttentionTest, ZerosAndTheirMean) {
  const Shape shape{1, 200, 2, kWidth};
  const Tensor zeros = blank(shape, DType::BF16), ones = blank(shape, DType::BF16);
  zeros.fill(0.0), ones.fill(1.0);
  expect_close(attended(zeros, zeros, zeros), std::vector<double>(at(zeros.numel()), 0.0), 0, 0, "zeros");
  expect_close(attended(zeros, random(shape, DType::BF16), ones), std::vector<double>(at(zeros.numel()), 1.0), 0.01, 0, "ones");
}

TEST_F(CudaEightBitAttentionTest, ReadsAndWritesViews) {
  const int64_t tokens = 333, heads = 3, all = 3 * heads * kWidth + 24;
  const Tensor qkv = random({2, tokens, all}, DType::BF16), out = blank({2, tokens, heads * kWidth + 40}, DType::BF16);
  const auto part = [&](int64_t i) {
    return qkv.narrowed(2, 8 + i * heads * kWidth, heads * kWidth).reshaped({2, tokens, heads, kWidth});
  };
  const Tensor y = out.narrowed(2, 16, heads * kWidth).reshaped({2, tokens, heads, kWidth});
  kernels().attention({part(0), part(1), part(2), y, nullptr, nullptr, kScale, false, true});
  const Tensor q = part(0).cloned(), k = part(1).cloned(), v = part(2).cloned();
  EXPECT_EQ(y.to_floats(), attended(q, k, v).to_floats());
  for (int64_t first : {int64_t{0}, 16 + heads * kWidth})
    for (double value : out.narrowed(2, first, 16).to_doubles()) ASSERT_EQ(value, 12352.0) << "beside the result";
}

TEST_F(CudaEightBitAttentionTest, GivesTheSameBytesAndCanBeReplayed) {
  const Shape shape{1, 1500, 24, kWidth};
  const Tensor q = random(shape, DType::BF16), k = random(shape, DType::BF16), v = random(shape, DType::BF16);
  const auto once = attended(q, k, v).to_floats();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(attended(q, k, v).to_floats(), once);
  const Tensor y = blank(shape, DType::BF16);
  const auto graph = stream->capture([&] { kernels().attention({q, k, v, y, nullptr, nullptr, kScale, false, true}); });
  for (int i = 0; i < 3; ++i) {
    y.fill(12345.0);
    graph->replay();
    EXPECT_EQ(y.to_floats(), once) << "replay " << i;
  }
}

TEST_F(CudaEightBitAttentionTest, NanShows) {
  const Shape shape{1, 200, 1, kWidth};
  std::vector<float> values(at(shape.numel()), 1.0f);
  values[50] = std::numeric_limits<float>::quiet_NaN();
  const Tensor odd = from(shape, values), plain = random(shape, DType::BF16);
  const auto any_nan = [](const Tensor& y) {
    const auto all = y.to_floats();
    return std::any_of(all.begin(), all.end(), [](float x) { return !std::isfinite(x); });
  };
  EXPECT_TRUE(any_nan(attended(odd, plain, plain)));
  EXPECT_TRUE(any_nan(attended(plain, odd, plain)));
  EXPECT_TRUE(any_nan(attended(plain, plain, odd)));
}

// Where the kernel does not fit, the option changes nothing.
TEST_F(CudaEightBitAttentionTest, OtherShapesAreComputedAsWithoutIt) {
  const auto same = [&](const Tensor& q, const Tensor* mask, bool causal) {
    const Tensor a = blank(q.shape(), q.dtype()), b = blank(q.shape(), q.dtype());
    kernels().attention({q, q, q, a, mask, nullptr, kScale, causal, true});
    kernels().attention({q, q, q, b, mask, nullptr, kScale, causal, false});
    EXPECT_EQ(a.to_floats(), b.to_floats()) << fmt::format("{} {}", q.shape(), name_of(q.dtype()));
  };
  const Tensor q = random({1, 100, 2, kWidth}, DType::BF16);
  const Tensor mask = ints({1, 100}, std::vector<int32_t>(100, 1));
  same(q, nullptr, true);
  same(q, &mask, false);
  same(random({1, 100, 2, kWidth}, DType::F32), nullptr, false);
  same(random({1, 100, 2, 64}, DType::BF16), nullptr, false);
}

}  // namespace
}  // namespace flux2
