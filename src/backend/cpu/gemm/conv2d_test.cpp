#include "backend/cpu/gemm/convolve.h"
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/operands.h"
#include "backend/cpu/gemm/test_values.h"

namespace flux2::gemm {
namespace {

struct Case {
  int64_t batch, height, width, channels, outputs, kernel;
  int stride, pad_before, pad_after;

  Shape x() const { return {batch, height, width, channels}; }
  Shape w() const { return {outputs, kernel, kernel, channels}; }
  Shape y() const { return {batch, extent(height), extent(width), outputs}; }
  int64_t extent(int64_t n) const { return (n + pad_before + pad_after - kernel) / stride + 1; }
  ConvShape conv() const { return {stride, pad_before, pad_before}; }
  std::string text() const { return fmt::format("{} * {} stride {} pad {}/{}", x(), w(), stride, pad_before, pad_after); }

  // Calls f(y index, x index, w index) for every product of the convolution.
  template <class F>
  void for_each_product(const F& f) const {
    const int64_t oh = extent(height), ow = extent(width);
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t i = 0; i < oh; ++i)
        for (int64_t j = 0; j < ow; ++j)
          for (int64_t u = 0; u < kernel; ++u)
            for (int64_t v = 0; v < kernel; ++v) {
              const int64_t r = i * stride - pad_before + u, s = j * stride - pad_before + v;
              if (r < 0 || r >= height || s < 0 || s >= width) continue;
              for (int64_t o = 0; o < outputs; ++o)
                for (int64_t c = 0; c < channels; ++c)
                  f(static_cast<size_t>(((b * oh + i) * ow + j) * outputs + o),
                    static_cast<size_t>(((b * height + r) * width + s) * channels + c),
                    static_cast<size_t>(((o * kernel + u) * kernel + v) * channels + c));
            }
  }
};

const std::vector<Case> kCases = {
    {2, 9, 11, 5, 7, 3, 1, 1, 1},     // 3×3, same size
    {1, 10, 8, 16, 13, 3, 2, 0, 1},   // 3×3 halving, padded right and below only
    {1, 9, 7, 6, 5, 3, 2, 0, 1},      // the same on odd sizes
    {1, 6, 5, 33, 17, 1, 1, 0, 0},    // 1×1
    {1, 5, 5, 130, 12, 3, 1, 1, 1},   // more than one block of K, cut inside a pixel
    {1, 1, 1, 3, 2, 3, 1, 1, 1},      // nothing but border
    {2, 13, 70, 32, 40, 3, 1, 1, 1},  // several blocks of the image and panels of weights
    {1, 70, 9, 60, 3, 5, 1, 2, 2},    // 5×5, few outputs
    {1, 4, 130, 64, 33, 1, 1, 0, 0},  // 1×1 in blocks
};

void expect_sums(const Tensor& got, const std::vector<Sum>& want, double stored, const std::string& what) {
  const auto values = got.to_floats();
  ASSERT_EQ(values.size(), want.size());
  Agreement agreement;
  for (size_t i = 0; i < want.size(); ++i)
    agreement.see(values[i], want[i].value, want[i].tolerance() + stored * std::abs(want[i].value), fmt::format("[{}]", i));
  agreement.expect(what);
}

TEST(GemmConv2d, AgreesWithTheSum) {
  for (Profile profile : {Profile::Exact, Profile::Fast}) {
    const TestCpu cpu(profile);
    for (const Case& c : kCases)
      for (DType image : {DType::F32, DType::BF16})
        for (DType weight : {DType::F32, DType::BF16}) {
          const Tensor x = noise(*cpu.stream, image, c.x(), 1), w = noise(*cpu.stream, weight, c.w(), 2);
          const Tensor bias = noise(*cpu.stream, DType::F32, {c.outputs}, 3), y = Tensor::like(x, c.y());
          cpu.device->kernels().conv2d({x, w, &bias, y, c.conv()});
          auto xs = x.to_floats(), ws = w.to_floats();
          if (cpu.rounds() && weight == DType::BF16) xs = rounded_to_bf16(xs);
          const auto bs = bias.to_floats();
          std::vector<Sum> want(static_cast<size_t>(y.numel()));
          c.for_each_product([&](size_t iy, size_t ix, size_t iw) { want[iy].add(xs[ix], ws[iw]); });
          for (size_t i = 0; i < want.size(); ++i) want[i].add(bs[i % bs.size()], 1);
          expect_sums(y, want, image == DType::BF16 ? 0x1p-8 : 0, c.text());
        }
  }
}

TEST(GemmConv2d, AddsToAResidual) {
  for (Profile profile : {Profile::Exact, Profile::Fast}) {
    const TestCpu cpu(profile);
    for (const Case& c : kCases)
      for (DType dtype : {DType::F32, DType::BF16}) {
        const Tensor x = noise(*cpu.stream, dtype, c.x(), 1), w = noise(*cpu.stream, DType::BF16, c.w(), 2);
        const Tensor bias = noise(*cpu.stream, DType::F32, {c.outputs}, 3), residual = noise(*cpu.stream, dtype, c.y(), 4);
        const Tensor plain = Tensor::like(x, DType::F32, c.y()), y = Tensor::like(x, c.y());
        cpu.device->kernels().conv2d({x, w, &bias, plain, c.conv()});
        cpu.device->kernels().conv2d_add({x, w, &bias, residual, y, c.conv()});
        const auto got = y.to_floats(), want = plain.to_floats(), added = residual.to_floats();
        for (size_t i = 0; i < got.size(); ++i)
          EXPECT_NEAR(got[i], want[i] + added[i], (dtype == DType::BF16 ? 0x1p-8 : 0x1p-23) * (1 + std::abs(want[i])))
              << c.text();
      }
  }
}

// Reading an image in place adds the same products in the same order as packing patches of it.
template <class T>
void expect_same_bytes(const MicroKernel<T>& kernel, Profile profile, DType image) {
  if (!kernel.in_place.run) return;
  const TestCpu cpu(profile);
  MicroKernel<T> packing = kernel;
  packing.in_place = {};
  for (const Case& c : kCases) {
    if (c.channels % kernel.kr != 0) continue;  // a step of k would hold values of two pixels
    const Tensor x = noise(*cpu.stream, image, c.x(), 1), w = noise(*cpu.stream, DType::BF16, c.w(), 2);
    const Tensor matrix = w.reshaped({c.outputs, c.kernel * c.kernel * c.channels});
    const auto convolved = [&](const MicroKernel<T>& with) {
      const Tensor y = Tensor::empty(*cpu.stream, DType::F32, c.y());
      convolve(with, x, TapGrid::of_input(w, y, c.conv()), MatrixRows<T>(matrix),
               {y.numel() / c.outputs, c.outputs, matrix.dim(1)}, output_of(y), workers_of(y));
      return y.to_floats();
    };
    EXPECT_EQ(convolved(kernel), convolved(packing)) << kernel.name << ", " << c.text();
  }
}

TEST(GemmConv2d, ReadingInPlaceGivesTheSameBytesAsPacking) {
  for (DType image : {DType::F32, DType::BF16}) {
    for (const auto* kernel : f32_kernels(CpuFeatures::detect())) expect_same_bytes(*kernel, Profile::Exact, image);
    for (const auto* kernel : bf16_kernels(CpuFeatures::detect())) expect_same_bytes(*kernel, Profile::Fast, image);
  }
}

// Against the 3×3 convolution of the upsampled image in double. The sums of two or four weights are rounded once more
// where weights are bf16.
TEST(GemmConv2d, UpsamplingIsFoldedIn) {
  for (Profile profile : {Profile::Exact, Profile::Fast}) {
    const TestCpu cpu(profile);
    for (const auto& [height, width, channels, outputs] :
         {std::array<int64_t, 4>{1, 1, 3, 2}, {2, 3, 5, 7}, {5, 4, 33, 13}, {7, 9, 140, 30}})
      for (DType image : {DType::F32, DType::BF16})
        for (DType weight : {DType::F32, DType::BF16}) {
          const Tensor x = noise(*cpu.stream, image, {2, height, width, channels}, 1);
          const Tensor w = noise(*cpu.stream, weight, {outputs, 3, 3, channels}, 2),
                       bias = noise(*cpu.stream, DType::F32, {outputs}, 3);
          const Tensor y = Tensor::like(x, {2, 2 * height, 2 * width, outputs});
          cpu.device->kernels().upsample_conv2d({x, w, &bias, y});
          const Case c = {2, 2 * height, 2 * width, channels, outputs, 3, 1, 1, 1};
          const bool rounds = cpu.rounds() && weight == DType::BF16;
          auto xs = x.to_floats();
          if (rounds) xs = rounded_to_bf16(xs);
          const auto ws = w.to_floats(), bs = bias.to_floats();
          std::vector<Sum> want(static_cast<size_t>(y.numel()));
          c.for_each_product([&](size_t iy, size_t ix, size_t iw) {
            const auto pixel = static_cast<int64_t>(ix) / channels, channel = static_cast<int64_t>(ix) % channels;
            const int64_t column = pixel % (2 * width), row = pixel / (2 * width) % (2 * height),
                          b = pixel / (4 * width * height);
            want[iy].add(xs[static_cast<size_t>(((b * height + row / 2) * width + column / 2) * channels + channel)], ws[iw]);
          });
          for (size_t i = 0; i < want.size(); ++i) want[i].add(bs[i % bs.size()], 1);
          const auto got = y.to_floats();
          Agreement agreement;
          for (size_t i = 0; i < want.size(); ++i) {
            const double terms = static_cast<double>(want[i].terms);
            const double sums = rounds ? 3 * 0x1p-8 * want[i].magnitude / std::sqrt(terms) : 0;
            agreement.see(got[i], want[i].value,
                          want[i].tolerance() + sums + (image == DType::BF16 ? 0x1p-8 : 0) * std::abs(want[i].value),
                          fmt::format("[{}]", i));
          }
          agreement.expect(
              fmt::format("{} x {} x {} to {}, {}, {}", height, width, channels, outputs, name_of(image), name_of(weight)));
        }
  }
}

TEST(GemmConv2d, GradientsAgreeWithTheSums) {
  for (Profile profile : {Profile::Exact, Profile::Fast}) {
    const TestCpu cpu(profile);
    for (const Case& c : kCases)
      for (DType weight : {DType::F32, DType::BF16}) {
        const Tensor x = noise(*cpu.stream, DType::F32, c.x(), 1), w = noise(*cpu.stream, weight, c.w(), 2);
        const Tensor dy = noise(*cpu.stream, DType::F32, c.y(), 3);
        const Tensor dx = Tensor::like(x), dw = Tensor::like(x, c.w());
        cpu.device->kernels().conv2d_grad_input({dy, w, dx, c.conv()});
        cpu.device->kernels().conv2d_grad_weight({dy, x, dw, c.conv()});
        const auto xs = x.to_floats(), ws = w.to_floats(), dys = dy.to_floats();
        const auto dys_rounded = cpu.rounds() && weight == DType::BF16 ? rounded_to_bf16(dys) : dys;
        std::vector<Sum> want_dx(static_cast<size_t>(dx.numel())), want_dw(static_cast<size_t>(dw.numel()));
        c.for_each_product([&](size_t iy, size_t ix, size_t iw) {
          want_dx[ix].add(dys_rounded[iy], ws[iw]);
          want_dw[iw].add(dys[iy], xs[ix]);
        });
        expect_sums(dx, want_dx, 0, "dx of " + c.text());
        expect_sums(dw, want_dw, 0, "dw of " + c.text());
      }
  }
}

}  // namespace
}  // namespace flux2::gemm
