#include "backend/cpu/kernels/kernel_test.h"

namespace flux2::cpu {
namespace {

using NormTest = KernelTest;
FLUX2_KERNEL_LEVELS(NormTest);

struct Moments {
  double mean = 0, variance = 0, square = 0;
};

Moments moments(const double* x, size_t n) {
  Moments m;
  for (size_t i = 0; i < n; ++i) {
    m.mean += x[i] / static_cast<double>(n);
    m.square += x[i] * x[i] / static_cast<double>(n);
  }
  for (size_t i = 0; i < n; ++i) m.variance += (x[i] - m.mean) * (x[i] - m.mean) / static_cast<double>(n);
  return m;
}

TEST_P(NormTest, LayerModulatedAndRms) {
  for (DType dtype : kFloats) {
    for (int64_t n : {1, 3, 15, 16, 17, 128, 3072}) {
      const Tensor wide = random({2, 3, n + 5}, dtype), x = wide.narrowed(2, 2, n), y = zeros(x.shape(), dtype);
      const Tensor shift = random({2, 1, n}, dtype), scale = random({2, 1, n}, dtype);
      const Tensor weight = random({n}, DType::BF16);
      const std::vector<double> in = x.to_doubles(), w = weight.to_doubles();
      const std::vector<double> vshift = shift.to_doubles(), vscale = scale.to_doubles();
      std::vector<double> layer, modulated, rms;
      for (size_t r = 0; r < 6; ++r) {
        const auto width = static_cast<size_t>(n);
        const Moments m = moments(in.data() + r * width, width);
        for (size_t i = 0; i < width; ++i) {
          const double v = in[r * width + i], normal = (v - m.mean) / std::sqrt(m.variance + 1e-6);
          layer.push_back(normal);
          modulated.push_back((1 + vscale[r / 3 * width + i]) * normal + vshift[r / 3 * width + i]);
          rms.push_back(v / std::sqrt(m.square + 1e-6) * w[i]);
        }
      }
      kernels.layer_norm({x, y, 1e-6f});
      expect_close(y, layer, tolerance(dtype));
      kernels.modulated_norm({x, shift, scale, y, 1e-6f});
      expect_close(y, modulated, 2 * tolerance(dtype));
      kernels.rms_norm({x, weight, y, 1e-6f});
      expect_close(y, rms, tolerance(dtype));
    }
  }
}

TEST_P(NormTest, GroupNormWithAndWithoutSilu) {
  for (DType dtype : kFloats) {
    for (int64_t channels : {8, 32, 96}) {
      const Tensor x = random({2, 13, 31, channels}, dtype), y = Tensor::like(x);
      const Tensor weight = random({channels}), bias = random({channels});
      kernels.scale({x, x, 2.0, 10.0});  // a mean far from zero, as activations have
      const std::vector<double> in = x.to_doubles(), w = weight.to_doubles(), b = bias.to_doubles();
      const int groups = 8;
      const size_t c_count = static_cast<size_t>(channels), width = c_count / groups, positions = 13 * 31;
      for (bool silu : {false, true}) {
        std::vector<double> expected(in.size());
        for (size_t sample = 0; sample < 2; ++sample) {
          for (size_t group = 0; group < groups; ++group) {
            std::vector<double> members;
            const auto at = [&](size_t p, size_t c) { return (sample * positions + p) * c_count + group * width + c; };
            for (size_t p = 0; p < positions; ++p)
              for (size_t c = 0; c < width; ++c) members.push_back(in[at(p, c)]);
            const Moments m = moments(members.data(), members.size());
            for (size_t p = 0; p < positions; ++p) {
              for (size_t c = 0; c < width; ++c) {
                const double normal = (in[at(p, c)] - m.mean) / std::sqrt(m.variance + 1e-6);
                const double v = normal * w[group * width + c] + b[group * width + c];
                expected[at(p, c)] = silu ? v / (1 + std::exp(-v)) : v;
              }
            }
          }
        }
        kernels.group_norm({x, weight, bias, y, groups, 1e-6f, silu});
        expect_close(y, expected, 2 * tolerance(dtype));
      }
    }
  }
}

// Numbers of about 1 around a mean of 1000: a difference of squares would have nothing left in f32.
TEST_P(NormTest, StatisticsDoNotCancel) {
  const Tensor x = random({1, 500, 16}), y = Tensor::like(x), one = zeros({16}), zero = zeros({16});
  one.fill(1.0);
  kernels.scale({x, x, 1.0, 1000.0});
  kernels.group_norm({x, one, zero, y, 1, 1e-6f, false});
  const std::vector<double> in = x.to_doubles();
  const Moments m = moments(in.data(), in.size());
  std::vector<double> expected;
  for (double v : in) expected.push_back((v - m.mean) / std::sqrt(m.variance + 1e-6));
  expect_close(y, expected, 1e-4);
}

TEST_P(NormTest, BitsDoNotDependOnNeighboursOrThreads) {
  const Tensor x = random({7, 300}), y = Tensor::like(x), row = Tensor::like(x, {1, 300});
  kernels.layer_norm({x, y, 1e-6f});
  kernels.layer_norm({x.narrowed(0, 5, 1), row, 1e-6f});
  EXPECT_EQ(row.to_floats(), y.narrowed(0, 5, 1).to_floats());
  const CpuOptions two_threads{2, Profile::Exact, GetParam().scalar_only};
  const auto other = open_cpu(two_threads)->open_stream();
  const Tensor image = random({1, 1000, 32}), weight = random({32}), bias = random({32}), here = Tensor::like(image);
  const Tensor there = Tensor::empty(*other, DType::F32, image.shape());
  kernels.group_norm({image, weight, bias, here, 4, 1e-6f, true});
  other->device().kernels().group_norm({image, weight, bias, there, 4, 1e-6f, true});
  EXPECT_EQ(here.to_floats(), there.to_floats());
}

}  // namespace
}  // namespace flux2::cpu
