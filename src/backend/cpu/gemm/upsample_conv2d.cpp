#include <array>
#include <vector>

#include "backend/cpu/gemm/convert.h"
#include "backend/cpu/gemm/convolve.h"
#include "backend/cpu/gemm/operands.h"
#include "backend/cpu/kernels/scalar_table.h"

namespace flux2::gemm {

namespace {

// Which of the three taps of a row (or column) of the kernel fall on the same pixel before upsampling: an even output row
// reads the pixel above with its first tap and its own pixel with the other two, an odd one its own pixel twice and then
// the one below.
struct Taps {
  int first, last;
};
constexpr Taps kTaps[2][2] = {{{0, 0}, {1, 2}}, {{0, 1}, {2, 2}}};

// The weights [O, 3, 3, C] of a phase (p, q) of the output: [O, 2, 2, C], summed in f32.
template <class T>
Tensor phase_weights(const Tensor& w, int p, int q, const Workers& workers) {
  const int64_t outputs = w.dim(0), c = w.dim(3);
  const Tensor matrix = w.reshaped({outputs, 9 * c}), phase = Tensor::empty(workers.stream, kDTypeOf<T>, {outputs, 4 * c});
  const MatrixRows<float> rows(matrix);
  workers.threads.parallel_ranges(outputs, 4, [&](int64_t begin, int64_t end) {
    std::vector<float> held(static_cast<size_t>(9 * c)), sum(static_cast<size_t>(c));
    for (int64_t o = begin; o < end; ++o) {
      const float* row;
      rows.rows(o, 1, 0, 9 * c, &row, held.data());
      for (int a = 0; a < 2; ++a)
        for (int b = 0; b < 2; ++b) {
          std::fill(sum.begin(), sum.end(), 0.0f);
          for (int u = kTaps[p][a].first; u <= kTaps[p][a].last; ++u)
            for (int v = kTaps[q][b].first; v <= kTaps[q][b].last; ++v)
              for (int64_t i = 0; i < c; ++i) sum[static_cast<size_t>(i)] += row[(3 * u + v) * c + i];
          convert(DType::F32, sum.data(), 0, c, phase.data<T>() + (o * 4 + 2 * a + b) * c);
        }
    }
  });
  return phase;
}

}  // namespace

// Every second pixel of every second row of the result is a 2×2 convolution of the input: four products with 4/9 of the
// arithmetic, and the upsampled image is never made.
void upsample_conv2d(const UpsampleConv2dArgs& args, const KernelSet& set) {
  const auto& [x, w, bias, y] = args;
  if (!computes({&x, &w, bias, &y})) {
    const Tensor wide = Tensor::like(x, {x.dim(0), 2 * x.dim(1), 2 * x.dim(2), x.dim(3)});
    cpu::upsample({x, wide});
    return cpu::conv2d({wide, w, bias, y, {1, 1, 1}});
  }
  const Workers workers = workers_of(y);
  const auto bias_values = bias_of(bias, workers.stream);
  const int64_t height = x.dim(1), width = x.dim(2), outputs = w.dim(0);
  with_kernel(set, w.dtype(), [&]<class T>(const MicroKernel<T>& kernel) {
    const Tensor image = image_as<T>(x);
    for (int p = 0; p < 2; ++p)
      for (int q = 0; q < 2; ++q) {
        const Tensor weights = phase_weights<T>(w, p, q, workers);
        const TapGrid taps = {.rows = height,
                              .columns = width,
                              .kernel_columns = 2,
                              .step = 1,
                              .top = 1 - p,
                              .left = 1 - q,
                              .direction = 1,
                              .divide = 1};
        Output output = {y.data<std::byte>() + bytes_for(y.dtype(), (p * 2 * width + q) * outputs), y.dtype(), 2 * outputs,
                         bias_values.get()};
        output.line = width;
        output.line_stride = 4 * width * outputs;
        convolve(kernel, image, taps, MatrixRows<T>(weights), {x.dim(0) * height * width, outputs, weights.dim(1)}, output,
                 workers);
      }
  });
}

}  // namespace flux2::gemm
