#include "backend/cpu/gemm/direct.h"
#include "backend/cpu/gemm/operands.h"
#include "backend/cpu/gemm/panels.h"
#include "backend/cpu/gemm/quantised_rows.h"
#include "backend/cpu/kernels/scalar_table.h"

namespace flux2::gemm {

namespace {

// Sums of more products of two int8 could leave int32: 128 · 127 · 2^17 < 2^31.
constexpr int64_t kMaxIntegerTerms = 1 << 17;

// Products of integers where the weight's format and the machine have them; false where they do not.
bool multiply_integers(const Tensor& x, const Tensor& w, const Extents& extents, Output output, const KernelSet& set,
                       const Workers& workers) {
  const bool rows = set.in_int8 && w.dtype() == DType::I8 && extents.k <= kMaxIntegerTerms;
  const bool blocks = set.in_blocks && is_block_type(w.dtype());
  if (!rows && !blocks) return false;
  const QuantisedRows quantised(x, workers);
  output.row_scales = quantised.scales();
  if (rows) {
    multiply(*set.in_int8, quantised, MatrixRows<int8_t>(w), extents, output, workers);
  } else {
    const RowPanels<int8_t> a(quantised, set.in_blocks->pack_a, set.in_blocks->mr);
    multiply(*set.in_blocks, a, BlockPanels(w, *set.in_blocks), extents, output, workers);
  }
  return true;
}

}  // namespace

void linear(const LinearArgs& args, const KernelSet& set) {
  const auto& [x, w, bias, y] = args;
  if (!computes({&x, &w, bias, &y})) return cpu::linear(args);
  const Workers workers = workers_of(y);
  const auto bias_values = bias_of(bias, workers.stream), scales = scales_of(w, workers.stream);
  Output output = output_of(y, bias_values.get());
  output.column_scales = scales.get();
  const Extents extents = {x.dim(0), w.dim(0), x.dim(1)};
  if (set.direct && extents.m <= kMaxDirectRows) return multiply_direct(x, w, output, workers, set.row_dots);
  if (multiply_integers(x, w, extents, output, set, workers)) return;
  with_kernel(set, w.dtype(), [&]<class T>(const MicroKernel<T>& kernel) {
    multiply(kernel, MatrixRows<T>(x, kernel.convert), MatrixRows<T>(w, kernel.convert), extents, output, workers);
  });
}

// The scales of a weight's rows lie along the summed axis here, so they go into dy.
void linear_grad_input(const LinearGradInputArgs& args, const KernelSet& set) {
  const auto& [dy, w, dx] = args;
  if (!computes({&dy, &w, &dx})) return cpu::linear_grad_input(args);
  const Tensor scaled = times_scales(dy, w);
  with_kernel(set, w.dtype(), [&]<class T>(const MicroKernel<T>& kernel) {
    const MatrixRows<T> weights(w);
    multiply(kernel, MatrixRows<T>(scaled), Transposed<T>(weights), {dy.dim(0), w.dim(1), dy.dim(1)}, output_of(dx),
             workers_of(dx));
  });
}

void linear_grad_weight(const LinearGradWeightArgs& args, const KernelSet& set) {
  const auto& [dy, x, dw] = args;
  if (!computes({&dy, &x, &dw})) return cpu::linear_grad_weight(args);
  const MatrixRows<float> rows_dy(dy), rows_x(x);
  multiply(*set.in_f32, Transposed<float>(rows_dy), Transposed<float>(rows_x), {dy.dim(1), x.dim(1), x.dim(0)}, output_of(dw),
           workers_of(dw));
}

}  // namespace flux2::gemm
