#include "backend/cpu/gemm/convolve.h"
#include "backend/cpu/gemm/operands.h"
#include "backend/cpu/kernels/scalar_table.h"

namespace flux2::gemm {

namespace {

// [O, kh, kw, C] as the matrix it is.
Tensor as_matrix(const Tensor& w) { return w.reshaped({w.dim(0), w.dim(1) * w.dim(2) * w.dim(3)}); }

int64_t pixels(const Tensor& image) { return image.dim(0) * image.dim(1) * image.dim(2); }

void convolve_input(const Conv2dArgs& args, const void* residual, const KernelSet& set) {
  const auto& [x, w, bias, y, conv] = args;
  const Workers workers = workers_of(y);
  const auto bias_values = bias_of(bias, workers.stream);
  const Tensor weights = as_matrix(w);
  Output output = output_of(y, bias_values.get());
  output.residual = residual;
  // y may also be its own residual, and a range of the channels of a wider image (conv2d_onto).
  output.row_stride = y.stride(2);
  with_kernel(set, w.dtype(), [&]<class T>(const MicroKernel<T>& kernel) {
    convolve(kernel, x, TapGrid::of_input(w, y, conv), MatrixRows<T>(weights), {pixels(y), weights.dim(0), weights.dim(1)},
             output, workers);
  });
}

}  // namespace

void conv2d(const Conv2dArgs& args, const KernelSet& set) {
  const auto& [x, w, bias, y, conv] = args;
  if (!computes({&x, &w, bias, &y})) return cpu::conv2d(args);
  convolve_input(args, nullptr, set);
}

void conv2d_add(const Conv2dAddArgs& args, const KernelSet& set) {
  const auto& [x, w, bias, residual, y, conv] = args;
  if (computes({&x, &w, bias, &y}) && residual.dtype() == y.dtype())
    return convolve_input({x, w, bias, y, conv}, residual.raw(), set);
  cpu::conv2d({x, w, bias, y, conv});
  y.device().kernels().binary({Binary::Add, residual, y, y});
}

void conv2d_grad_input(const Conv2dGradInputArgs& args, const KernelSet& set) {
  const auto& [dy, w, dx, conv] = args;
  if (!computes({&dy, &w, &dx})) return cpu::conv2d_grad_input(args);
  with_kernel(set, w.dtype(), [&]<class T>(const MicroKernel<T>& kernel) {
    convolve(kernel, dy, TapGrid::of_gradient(w, dx, conv), WeightColumns<T>(w),
             {pixels(dx), w.dim(3), w.dim(0) * w.dim(1) * w.dim(2)}, output_of(dx), workers_of(dx));
  });
}

void conv2d_grad_weight(const Conv2dGradWeightArgs& args, const KernelSet& set) {
  const auto& [dy, x, dw, conv] = args;
  if (!computes({&dy, &x, &dw})) return cpu::conv2d_grad_weight(args);
  const Tensor gradients = as_matrix(dw), rows_dy = dy.reshaped({pixels(dy), dy.dim(3)});
  const MatrixRows<float> by_pixel(rows_dy);
  const Patches<float> patches(x, TapGrid::of_input(dw, dy, conv));
  multiply(*set.in_f32, Transposed<float>(by_pixel), Transposed<float>(patches), {gradients.dim(0), gradients.dim(1), pixels(dy)},
           output_of(gradients), workers_of(dw));
}

}  // namespace flux2::gemm
