#include <algorithm>
#include <limits>

#include "backend/cuda/cuda_test.h"
#include "backend/cuda/kernels/parts.h"

namespace flux2 {

namespace {

struct Case {
  int64_t batch, queries, keys, heads, key_heads, width;
  bool causal = false, masked = false;
};

class CudaAttentionTest : public CudaTest {
 protected:
  // The scores of a padded row of the last batch are all hidden when `masked`.
  Tensor mask_for(const Case& c) {
    std::vector<int32_t> mask(at(c.batch * c.keys));
    for (size_t i = 0; i < mask.size(); ++i) mask[i] = generator() % 4 != 0;
    if (c.batch > 1) std::fill_n(mask.end() - c.keys, c.keys, 0);
    return ints({c.batch, c.keys}, mask);
  }

  void compare(const Case& c, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& y) {
    const Tensor log_sum = blank({c.batch, c.heads, c.queries}, DType::F32);
    Tensor mask;
    if (c.masked) mask = mask_for(c);
    const float scale = 1.0f / std::sqrt(static_cast<float>(c.width));
    kernels().attention({q, k, v, y, c.masked ? &mask : nullptr, &log_sum, scale, c.causal});

    const auto qs = q.to_doubles(), ks = k.to_doubles(), vs = v.to_doubles();
    const auto visible = c.masked ? mask.to_ints() : std::vector<int32_t>(at(c.batch * c.keys), 1);
    std::vector<double> wanted(qs.size(), 0.0), sums(at(c.batch * c.heads * c.queries));
    std::vector<double> p(at(c.keys));
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t h = 0; h < c.heads; ++h)
        for (int64_t i = 0; i < c.queries; ++i) {
          const int64_t g = h / (c.heads / c.key_heads);
          const double* query = &qs[at(((b * c.queries + i) * c.heads + h) * c.width)];
          double total = 0, top = -std::numeric_limits<double>::infinity();
          for (int64_t j = 0; j < c.keys; ++j) {
            const bool sees = (!c.causal || j <= i + c.keys - c.queries) && visible[at(b * c.keys + j)] != 0;
            double s = 0;
            for (int64_t d = 0; d < c.width; ++d) s += query[d] * ks[at(((b * c.keys + j) * c.key_heads + g) * c.width + d)];
            p[at(j)] = sees ? s * scale : -std::numeric_limits<double>::infinity();
            top = std::max(top, p[at(j)]);
          }
          for (double& s : p) s = std::isinf(s) ? 0.0 : std::exp(s - top), total += s;
          sums[at((b * c.heads + h) * c.queries + i)] = total > 0 ? top + std::log(total) : top;
          if (total == 0) continue;
          for (int64_t j = 0; j < c.keys; ++j)
            for (int64_t d = 0; d < c.width; ++d)
              wanted[at(((b * c.queries + i) * c.heads + h) * c.width + d)] +=
                  p[at(j)] / total * vs[at(((b * c.keys + j) * c.key_heads + g) * c.width + d)];
        }
    const bool half = q.dtype() == DType::BF16;
    const std::string what =
        fmt::format("{} batch {} queries {} keys {} heads {}/{} width {}{}{}", name_of(q.dtype()), c.batch, c.queries, c.keys,
                    c.heads, c.key_heads, c.width, c.causal ? " causal" : "", c.masked ? " masked" : "");
    // Probabilities are rounded to BF16 before the second product: an error relative to the values, not to their sum.
    expect_close(y, wanted, half ? 0x1p-7 : 1e-5, half ? 8e-3 : 1e-5, what);
    const auto actual = log_sum.to_doubles();
    for (size_t i = 0; i < sums.size(); ++i) {
      if (std::isinf(sums[i])) EXPECT_EQ(actual[i], sums[i]) << what << " log_sum " << i;
      else ASSERT_NEAR(actual[i], sums[i], half ? 1e-4 : 2e-5) << what << " log_sum " << i;
    }
  }
};

TEST_F(CudaAttentionTest, AgreesWithTheEquation) {
  for (DType t : {DType::F32, DType::BF16})
    for (int64_t width : {8, 32, 40, 64, 72, 128})
      for (bool causal : {false, true})
        for (bool masked : {false, true})
          for (const Case& shape : {Case{1, 1, 1, 1, 1}, Case{2, 5, 5, 4, 2}, Case{1, 64, 64, 2, 2}, Case{2, 65, 63, 2, 1},
                                    Case{1, 130, 200, 3, 3}, Case{1, 33, 257, 4, 1}}) {
            Case c = shape;
            c.width = width, c.causal = causal, c.masked = masked;
            const Tensor q = random({c.batch, c.queries, c.heads, width}, t, 1.5),
                         k = random({c.batch, c.keys, c.key_heads, width}, t);
            compare(c, q, k, random(k.shape(), t), blank(q.shape(), t));
          }
}

TEST_F(CudaAttentionTest, WideAndOddHeads) {
  for (DType t : {DType::F32, DType::BF16})
    for (int64_t width : {12, 136, 384, 512})
      for (bool causal : {false, true}) {
        const Case c{2, 50, 51, 2, 1, width, causal, true};
        const Tensor q = random({2, 50, 2, width}, t), k = random({2, 51, 1, width}, t);
        compare(c, q, k, random(k.shape(), t), blank(q.shape(), t));
      }
}

TEST_F(CudaAttentionTest, ReadsAndWritesViews) {
  for (DType t : {DType::F32, DType::BF16})
    for (int64_t shift : {0, 8, 1}) {  // whole, aligned, misaligned
      const Case c{2, 70, 70, 2, 2, 64};
      const Tensor qkv = random({2, 70, 3 * 128 + 16}, t), out = blank({2, 70, 160}, t);
      const auto part = [&](int64_t i) { return qkv.narrowed(2, shift + i * 128, 128).reshaped({2, 70, 2, 64}); };
      compare(c, part(0), part(1), part(2), out.narrowed(2, shift, 128).reshaped({2, 70, 2, 64}));
      const double untouched = t == DType::BF16 ? 12352.0 : 12345.0;
      for (double v : out.narrowed(2, shift + 128, 24).to_doubles()) ASSERT_EQ(v, untouched);
    }
}

// Whatever the table chooses against our own kernel, at lengths that no loop on the host would finish.
TEST_F(CudaAttentionTest, LongSequencesAgreeWithOurKernel) {
  for (const Case& c : {Case{1, 1, 3000, 4, 4, 128}, Case{1, 77, 77, 24, 24, 128}, Case{2, 1000, 1531, 6, 2, 128},
                        Case{1, 4608, 4608, 3, 3, 128}, Case{1, 20000, 20000, 1, 1, 128}, Case{2, 1300, 1300, 4, 4, 64}}) {
    const int64_t all = (c.heads + 2 * c.key_heads) * c.width;
    const Tensor q_rows = random({c.batch, c.queries, all}, DType::BF16), key_rows = random({c.batch, c.keys, all}, DType::BF16);
    const auto part = [&](const Tensor& rows, int64_t first, int64_t heads) {
      return rows.narrowed(2, first * c.width, heads * c.width).reshaped({c.batch, rows.dim(1), heads, c.width});
    };
    const Tensor q = part(q_rows, 0, c.heads), k = part(key_rows, c.heads, c.key_heads),
                 v = part(key_rows, c.heads + c.key_heads, c.key_heads);
    const Tensor y = blank(q.shape(), DType::BF16), ours = blank(q.shape(), DType::BF16);
    const Tensor sums = blank({c.batch, c.heads, c.queries}, DType::F32), our_sums = blank(sums.shape(), DType::F32);
    const float scale = 2.0f / std::sqrt(static_cast<float>(c.width));
    const std::string what = fmt::format("{} queries, {} keys, heads {}/{}", c.queries, c.keys, c.heads, c.key_heads);
    cuda::flash_attention({q, k, v, ours, nullptr, &our_sums, scale, false});
    kernels().attention({q, k, v, y, nullptr, nullptr, scale, false});
    expect_close(y, ours.to_doubles(), 0x1p-7, 4e-3, what);
    y.fill(12345.0);
    kernels().attention({q, k, v, y, nullptr, &sums, scale, false});
    expect_close(y, ours.to_doubles(), 0x1p-7, 4e-3, what + " with sums");
    expect_close(sums, our_sums.to_doubles(), 1e-5, 1e-4, what + " sums");
  }
}

// One head of 512 over rows that the softmax keeps in registers, and over rows that are too long for that.
TEST_F(CudaAttentionTest, WideHeadOverManyKeys) {
  for (int64_t keys : {2000, 8190, 16384, 24577}) {
    const Case c{1, 3, keys, 1, 1, 512};
    const Tensor q = random({1, 3, 1, 512}, DType::BF16), k = random({1, keys, 1, 512}, DType::BF16);
    compare(c, q, k, random(k.shape(), DType::BF16), blank(q.shape(), DType::BF16));
  }
}

TEST_F(CudaAttentionTest, LargeScoresStayFinite) {
  const Tensor q = random({1, 20, 1, 128}, DType::BF16, 30.0), k = random({1, 300, 1, 128}, DType::BF16, 30.0),
               y = blank(q.shape(), DType::BF16);
  const Tensor v = random(k.shape(), DType::BF16);
  kernels().attention({q, k, v, y, nullptr, nullptr, 1.0f, false});
  for (double e : y.to_doubles()) ASSERT_TRUE(std::isfinite(e));
}

}  // namespace

}  // namespace flux2
