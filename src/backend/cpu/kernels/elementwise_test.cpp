#include "backend/cpu/kernels/kernel_test.h"

namespace flux2::cpu {
namespace {

using ElementwiseTest = KernelTest;
FLUX2_KERNEL_LEVELS(ElementwiseTest);

double silu(double x) { return x / (1 + std::exp(-x)); }

TEST_P(ElementwiseTest, UnaryOps) {
  for (DType dtype : kFloats) {
    for (int64_t n : {1, 15, 16, 17, 2500}) {
      const Tensor x = random({3, n}, dtype), y = Tensor::like(x);
      const std::vector<double> in = x.to_doubles();
      const auto expect = [&](Unary op, auto&& f) {
        kernels.unary({op, x, y});
        std::vector<double> expected;
        for (double v : in) expected.push_back(f(v));
        expect_close(y, expected, tolerance(dtype));
      };
      expect(Unary::Silu, silu);
      expect(Unary::Exp, [](double v) { return std::exp(v); });
      expect(Unary::Abs, [](double v) { return std::abs(v); });
      expect(Unary::Square, [](double v) { return v * v; });
    }
  }
}

TEST_P(ElementwiseTest, BinaryOpsBroadcastAndMayOverwrite) {
  for (DType dtype : kFloats) {
    const Tensor a = random({4, 5, 130}, dtype), b = random({4, 1, 130}, dtype), c = random({5, 1}, dtype);
    const Tensor wide_b = b.expanded(a.shape()), wide_c = c.expanded(a.shape());
    const std::vector<double> va = a.to_doubles(), vb = wide_b.to_doubles(), vc = wide_c.to_doubles();
    std::vector<double> sum(va.size()), difference(va.size()), product(va.size());
    for (size_t i = 0; i < va.size(); ++i) {
      sum[i] = va[i] + vb[i];
      difference[i] = va[i] - vb[i];
      product[i] = va[i] * vc[i];
    }
    const Tensor y = Tensor::like(a);
    kernels.binary({Binary::Add, a, wide_b, y});
    expect_close(y, sum, tolerance(dtype));
    kernels.binary({Binary::Sub, a, wide_b, y});
    expect_close(y, difference, tolerance(dtype));
    kernels.binary({Binary::Mul, a, wide_c, a});
    expect_close(a, product, tolerance(dtype));
  }
}

TEST_P(ElementwiseTest, ScaleSwigluAndGatedAdd) {
  for (DType dtype : kFloats) {
    const Tensor both = random({2, 7, 2 * 67}, dtype), gate = both.narrowed(2, 0, 67), up = both.narrowed(2, 67, 67);
    const Tensor g = random({2, 1, 67}, dtype), y = Tensor::like(gate);
    const std::vector<double> vgate = gate.to_doubles(), vup = up.to_doubles(), vg = g.expanded(y.shape()).to_doubles();
    std::vector<double> scaled, gated, added;
    for (size_t i = 0; i < vgate.size(); ++i) {
      scaled.push_back(-1.5 * vgate[i] + 0.25);
      gated.push_back(silu(vgate[i]) * vup[i]);
      added.push_back(vup[i] + vg[i] * vgate[i]);
    }
    kernels.scale({gate, y, -1.5, 0.25});
    expect_close(y, scaled, tolerance(dtype));
    kernels.swiglu({gate, up, y});
    expect_close(y, gated, tolerance(dtype));
    kernels.gated_add({up, g, gate, y});
    expect_close(y, added, tolerance(dtype));
  }
}

TEST_P(ElementwiseTest, SumsOverAnyAxes) {
  for (DType dtype : kFloats) {
    const Tensor x = random({3, 4, 5, 100}, dtype);
    const std::vector<double> v = x.to_doubles();
    for (unsigned kept = 0; kept < 16; ++kept) {
      Shape shape{1, 1, 1, 1};
      for (int axis = 0; axis < 4; ++axis)
        if (kept >> axis & 1) shape[axis] = x.dim(axis);
      std::vector<double> expected(static_cast<size_t>(shape.numel()));
      const Shape strides = shape.strides();
      for (int64_t i = 0; i < x.numel(); ++i) {
        int64_t at = 0, rest = i;
        for (int axis = 3; axis >= 0; --axis) {
          if (shape[axis] != 1) at += rest % x.dim(axis) * strides[axis];
          rest /= x.dim(axis);
        }
        expected[static_cast<size_t>(at)] += v[static_cast<size_t>(i)];
      }
      const Tensor y = Tensor::like(x, shape);
      kernels.sum({x, y});
      expect_close(y, expected, tolerance(dtype));
    }
  }
}

TEST_P(ElementwiseTest, EmbeddingReadsRowsOfAnyDType) {
  const Tensor table = random({10, 64}), ids = ints({2, 3}, {0, 9, 4, 4, 1, 0}), y = zeros({2, 3, 64});
  Tensor packed = Tensor::empty(*stream, DType::Q8_0, {10, 64});
  for (int b = 0; b < 20; ++b) {
    packed.data<BlockQ8_0>()[b].scale = to_f16(0.5f);
    for (int i = 0; i < 32; ++i) packed.data<BlockQ8_0>()[b].q[i] = static_cast<int8_t>(b + i);
  }
  const Tensor bytes = ints({10, 64}, std::vector<int32_t>(640, -7)).cast(DType::I8);
  const Tensor by_row = bytes.with_scales(random({10})), whole = bytes.with_scales(random({1}));
  for (const Tensor& t : {table, table.cast(DType::BF16), packed, by_row, whole}) {
    kernels.embedding({ids, t, y});
    const std::vector<double> rows = t.cast(DType::F32).to_doubles();  // a product of scale and byte rounded once
    std::vector<double> expected;
    for (int32_t id : ids.to_ints()) expected.insert(expected.end(), rows.begin() + id * 64, rows.begin() + (id + 1) * 64);
    expect_close(y, expected, 0);
  }
  EXPECT_THROW(kernels.embedding({ints({1, 1}, {10}), table, zeros({1, 1, 64})}), Error);
  EXPECT_THROW(kernels.embedding({ints({1, 1}, {-1}), table, zeros({1, 1, 64})}), Error);
}

TEST_P(ElementwiseTest, UpsampleRepeatsPixels) {
  const Tensor x = random({2, 3, 4, 5}), y = zeros({2, 6, 8, 5});
  kernels.upsample({x, y});
  const std::vector<float> in = x.to_floats(), out = y.to_floats();
  for (size_t b = 0; b < 2; ++b)
    for (size_t i = 0; i < 6; ++i)
      for (size_t j = 0; j < 8; ++j)
        for (size_t c = 0; c < 5; ++c) ASSERT_EQ(out[((b * 6 + i) * 8 + j) * 5 + c], in[((b * 3 + i / 2) * 4 + j / 2) * 5 + c]);
}

TEST_P(ElementwiseTest, RopeOfBothStyles) {
  for (DType dtype : kFloats) {
    for (int64_t width : {2, 6, 8, 36, 128}) {
      const Tensor packed = random({2, 5, 3, 2 * width}, dtype), x = packed.narrowed(3, width, width);
      const Tensor y = zeros(x.shape(), dtype);
      const Tensor cosine = random({5, width / 2}), sine = random({5, width / 2});
      const std::vector<double> in = x.to_doubles(), c = cosine.to_doubles(), s = sine.to_doubles();
      for (bool interleaved : {true, false}) {
        for (bool inverse : {true, false}) {
          std::vector<double> expected(in.size());
          for (int64_t row = 0; row < 30; ++row) {
            for (int64_t i = 0; i < width / 2; ++i) {
              const auto angle = static_cast<size_t>(row / 3 % 5 * (width / 2) + i);
              const auto first = static_cast<size_t>(row * width + (interleaved ? 2 * i : i));
              const size_t second = first + static_cast<size_t>(interleaved ? 1 : width / 2);
              const double sin = inverse ? -s[angle] : s[angle];
              expected[first] = c[angle] * in[first] - sin * in[second];
              expected[second] = sin * in[first] + c[angle] * in[second];
            }
          }
          kernels.rope({x, cosine, sine, y, interleaved, inverse});
          expect_close(y, expected, tolerance(dtype));
        }
      }
    }
  }
}

}  // namespace
}  // namespace flux2::cpu
