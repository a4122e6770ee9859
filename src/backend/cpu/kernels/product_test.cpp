#include "backend/cpu/kernels/kernel_test.h"

namespace flux2::cpu {
namespace {

using ProductTest = KernelTest;
FLUX2_KERNEL_LEVELS(ProductTest);

TEST_P(ProductTest, LinearWithEveryWeightDType) {
  const int64_t n = 37, k = 96;
  const Tensor plain = random({n, k}), bias = random({n});
  Tensor q8 = Tensor::empty(*stream, DType::Q8_0, {n, k}), q4 = Tensor::empty(*stream, DType::Q4_0, {n, k});
  for (int64_t b = 0; b < n * k / 32; ++b) {
    q8.data<BlockQ8_0>()[b].scale = q4.data<BlockQ4_0>()[b].scale = to_f16(0.01f);
    for (int i = 0; i < 32; ++i) q8.data<BlockQ8_0>()[b].q[i] = static_cast<int8_t>(generator());
    for (int i = 0; i < 16; ++i) q4.data<BlockQ4_0>()[b].q[i] = static_cast<uint8_t>(generator());
  }
  for (int64_t m : {1, 3, 40}) {
    for (const Tensor& w : {plain, plain.cast(DType::BF16), plain.cast(DType::F16), plain.cast(DType::F8_E4M3),
                            plain.cast(DType::F8_E5M2), q8, q4}) {
      for (bool with_bias : {false, true}) {
        const Tensor wide = random({m, k + 8}), x = wide.narrowed(1, 8, k), y = zeros({m, n});
        const std::vector<double> vx = x.to_doubles(), vw = w.cast(DType::F64).to_doubles(), vb = bias.to_doubles();
        std::vector<double> expected;
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            double sum = with_bias ? vb[static_cast<size_t>(j)] : 0;
            for (int64_t l = 0; l < k; ++l) sum += vx[static_cast<size_t>(i * k + l)] * vw[static_cast<size_t>(j * k + l)];
            expected.push_back(sum);
          }
        }
        SCOPED_TRACE(name_of(w.dtype()));
        kernels.linear({x, w, with_bias ? &bias : nullptr, y});
        expect_close(y, expected, 2e-5);
      }
    }
  }
}

TEST_P(ProductTest, LinearInEveryActivationDType) {
  for (DType dtype : kFloats) {
    const Tensor x = random({5, 40}, dtype), w = random({9, 40}, dtype), y = zeros({5, 9}, dtype);
    const std::vector<double> vx = x.to_doubles(), vw = w.to_doubles();
    std::vector<double> expected;
    for (size_t i = 0; i < 5; ++i) {
      for (size_t j = 0; j < 9; ++j) {
        double sum = 0;
        for (size_t l = 0; l < 40; ++l) sum += vx[i * 40 + l] * vw[j * 40 + l];
        expected.push_back(sum);
      }
    }
    kernels.linear({x, w, nullptr, y});
    expect_close(y, expected, tolerance(dtype));
  }
}

TEST_P(ProductTest, LinearBitsDoNotDependOnOtherRows) {
  const Tensor x = random({70, 100}), w = random({50, 100}), y = zeros({70, 50}), one = zeros({1, 50});
  kernels.linear({x, w, nullptr, y});
  for (int64_t i : {0, 33, 69}) {
    kernels.linear({x.narrowed(0, i, 1), w, nullptr, one});
    EXPECT_EQ(one.to_floats(), y.narrowed(0, i, 1).to_floats()) << "row " << i;
  }
}

struct AttentionCase {
  int64_t queries, keys, heads, key_heads, width;
  bool causal, masked;
};

TEST_P(ProductTest, AttentionVariants) {
  const AttentionCase cases[] = {{5, 5, 2, 2, 16, false, false}, {70, 70, 2, 2, 128, false, false},
                                 {9, 9, 6, 2, 8, true, false},   {9, 9, 4, 1, 24, true, true},
                                 {3, 17, 2, 2, 64, false, true}, {1, 1, 1, 1, 512, false, false},
                                 {5, 17, 4, 2, 16, true, false}, {1, 9, 4, 2, 16, true, true}};
  for (DType dtype : kFloats) {
    for (const AttentionCase& c : cases) {
      const Tensor packed = random({2, c.queries, c.heads, 2 * c.width}, dtype);
      const Tensor q = packed.narrowed(3, c.width, c.width), y = Tensor::like(q);
      const Shape key_shape{2, c.keys, c.key_heads, c.width};
      const Tensor k = random(key_shape, dtype), v = random(key_shape, dtype);
      const Tensor log_sum = zeros({2, c.heads, c.queries}, dtype == DType::F64 ? DType::F64 : DType::F32);
      std::vector<int32_t> visible(static_cast<size_t>(2 * c.keys));
      for (size_t i = 0; i < visible.size(); ++i) visible[i] = i % 3 != 0;  // query 0 of a causal case sees nothing
      const Tensor mask = ints({2, c.keys}, visible);
      const double scale = 1 / std::sqrt(static_cast<double>(c.width));
      const std::vector<double> vq = q.to_doubles(), vk = k.to_doubles(), vv = v.to_doubles();
      std::vector<double> expected(vq.size()), sums;
      for (int64_t b = 0; b < 2; ++b) {
        for (int64_t h = 0; h < c.heads; ++h) {
          for (int64_t i = 0; i < c.queries; ++i) {
            double total = 0;
            const auto q_at = static_cast<size_t>(((b * c.queries + i) * c.heads + h) * c.width);
            for (int64_t j = 0; j < c.keys; ++j) {
              if ((c.causal && j > i + c.keys - c.queries) || (c.masked && !visible[static_cast<size_t>(b * c.keys + j)]))
                continue;
              const int64_t key_head = h / (c.heads / c.key_heads);
              const auto k_at = static_cast<size_t>(((b * c.keys + j) * c.key_heads + key_head) * c.width);
              double score = 0;
              for (size_t d = 0; d < static_cast<size_t>(c.width); ++d) score += vq[q_at + d] * vk[k_at + d];
              const double weight = std::exp(score * scale);
              total += weight;
              for (size_t d = 0; d < static_cast<size_t>(c.width); ++d) expected[q_at + d] += weight * vv[k_at + d];
            }
            for (size_t d = 0; d < static_cast<size_t>(c.width) && total > 0; ++d) expected[q_at + d] /= total;
            sums.push_back(std::log(total));
          }
        }
      }
      SCOPED_TRACE(::testing::Message() << name_of(dtype) << " " << c.queries << "x" << c.keys);
      kernels.attention({q, k, v, y, c.masked ? &mask : nullptr, &log_sum, static_cast<float>(scale), c.causal});
      expect_close(y, expected, dtype == DType::F64 ? 1e-7 : tolerance(dtype));  // scale itself is f32
      const std::vector<double> got = log_sum.to_doubles();
      for (size_t i = 0; i < sums.size(); ++i) {
        if (std::isinf(sums[i])) {
          EXPECT_EQ(got[i], sums[i]);
        } else {
          EXPECT_NEAR(got[i], sums[i], 1e-5);
        }
      }
    }
  }
}

TEST_P(ProductTest, Conv2dWithStrideAndPadding) {
  struct Case {
    int64_t kernel;
    int stride, top, left;
    int64_t bottom, right;
  };
  const Case cases[] = {{1, 1, 0, 0, 0, 0}, {3, 1, 1, 1, 1, 1}, {3, 2, 0, 0, 1, 1}, {3, 2, 1, 1, 1, 1}, {2, 1, 0, 1, 0, 0}};
  const int64_t height = 9, width = 12, in = 5, out = 7;
  for (DType dtype : kFloats) {
    for (const Case& c : cases) {
      const int64_t h = (height + c.top + c.bottom - c.kernel) / c.stride + 1;
      const int64_t w = (width + c.left + c.right - c.kernel) / c.stride + 1;
      const Tensor x = random({2, height, width, in}, dtype), weight = random({out, c.kernel, c.kernel, in}, dtype);
      const Tensor bias = random({out}), y = zeros({2, h, w, out}, dtype);
      const std::vector<double> vx = x.to_doubles(), vw = weight.to_doubles(), vb = bias.to_doubles();
      std::vector<double> expected;
      for (int64_t p = 0; p < 2 * h * w; ++p) {
        for (int64_t o = 0; o < out; ++o) {
          double sum = vb[static_cast<size_t>(o)];
          for (int64_t r = 0; r < c.kernel; ++r) {
            for (int64_t s = 0; s < c.kernel; ++s) {
              const int64_t i = p / w % h * c.stride - c.top + r, j = p % w * c.stride - c.left + s;
              if (i < 0 || j < 0 || i >= height || j >= width) continue;
              for (int64_t ch = 0; ch < in; ++ch)
                sum += vx[static_cast<size_t>(((p / w / h * height + i) * width + j) * in + ch)] *
                       vw[static_cast<size_t>(((o * c.kernel + r) * c.kernel + s) * in + ch)];
            }
          }
          expected.push_back(sum);
        }
      }
      SCOPED_TRACE(::testing::Message() << name_of(dtype) << " kernel " << c.kernel << " stride " << c.stride);
      kernels.conv2d({x, weight, &bias, y, {c.stride, c.top, c.left}});
      expect_close(y, expected, tolerance(dtype));
    }
  }
}

}  // namespace
}  // namespace flux2::cpu
