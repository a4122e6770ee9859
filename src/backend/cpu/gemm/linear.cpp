#include "backend/cpu/gemm/direct.h"
#include "backend/cpu/gemm/operands.h"
#include "backend/cpu/kernels/scalar_table.h"

namespace flux2::gemm {

void linear(const LinearArgs& args, const KernelSet& set) {
  const auto& [x, w, bias, y] = args;
  if (!computes({&x, &w, bias, &y})) return cpu::linear(args);
  const Workers workers = workers_of(y);
  const auto bias_values = bias_of(bias, workers.stream);
  const Output output = output_of(y, bias_values.get());
  const Extents extents = {x.dim(0), w.dim(0), x.dim(1)};
  if (set.direct && extents.m <= kMaxDirectRows) return multiply_direct(x, w, output, workers);
  with_kernel(set, w.dtype(), [&]<class T>(const MicroKernel<T>& kernel) {
    multiply(kernel, MatrixRows<T>(x), MatrixRows<T>(w), extents, output, workers);
  });
}

void linear_grad_input(const LinearGradInputArgs& args, const KernelSet& set) {
  const auto& [dy, w, dx] = args;
  if (!computes({&dy, &w, &dx})) return cpu::linear_grad_input(args);
  with_kernel(set, w.dtype(), [&]<class T>(const MicroKernel<T>& kernel) {
    const MatrixRows<T> weights(w);
    multiply(kernel, MatrixRows<T>(dy), Transposed<T>(weights), {dy.dim(0), w.dim(1), dy.dim(1)}, output_of(dx),
             workers_of(dx));
  });
}

void linear_grad_weight(const LinearGradWeightArgs& args, const KernelSet& set) {
  const auto& [dy, x, dw] = args;
  if (!computes({&dy, &x, &dw})) return cpu::linear_grad_weight(args);
  const MatrixRows<float> rows_dy(dy), rows_x(x);
  multiply(*set.in_f32, Transposed<float>(rows_dy), Transposed<float>(rows_x), {dy.dim(1), x.dim(1), x.dim(0)},
           output_of(dw), workers_of(dw));
}

}  // namespace flux2::gemm
