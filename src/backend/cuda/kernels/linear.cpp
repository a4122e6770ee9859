#include <array>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/matrix.h"
#include "backend/cuda/kernels/parts.h"

namespace flux2::cuda {

namespace {

// The weight in the dtype of the activations. Quantised, 8-bit and exact-profile weights are unpacked into memory of the
// stream for the time of one product.
Tensor weight_as(DType dtype, const Tensor& w) { return matrix_operand(w.cast(dtype)); }

void check_activations(const char* op, const Tensor& x) {
  if (x.dtype() != DType::F32 && x.dtype() != DType::BF16) refuse_dtype(op, x.dtype());
}

OpCost cost_of(const std::array<Tensor, 3>& matrices, int64_t rows, int64_t columns, int64_t inner) {
  return {.flop = 2.0 * static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(inner),
          .bytes = traffic({&matrices[0], &matrices[1], &matrices[2]}),
          .rows = rows,
          .columns = columns,
          .inner = inner};
}

}  // namespace

Tensor matrix_operand(const Tensor& t) {
  const bool rows_contiguous = t.dim(1) == 1 || t.stride(1) == 1;
  const bool rows_apart = t.dim(0) == 1 || t.stride(0) >= t.dim(1);
  return rows_contiguous && rows_apart ? t : t.cloned();
}

Matrix matrix_of(const Tensor& t) { return {t.raw(), t.dtype(), t.dim(0), t.dim(1), t.dim(0) == 1 ? t.dim(1) : t.stride(0)}; }

void linear(const LinearArgs& args) {
  check_activations("linear", args.x);
  if (args.y.numel() == 0) return;
  CudaStream& stream = stream_for(args.y);
  const Tensor x = matrix_operand(args.x), w = weight_as(args.x.dtype(), args.w);
  Tensor bias;
  if (args.bias) {
    bias = args.bias->cast(args.y.dtype()).contiguous();
    if (!is_aligned(bias.raw(), 16)) bias = bias.cloned();
  }
  stream.cublas().multiply({.a = matrix_of(x),
                            .b = matrix_of(w),
                            .y = matrix_of(args.y),
                            .transpose_b = true,
                            .bias = bias.defined() ? bias.raw() : nullptr});
  stream.enqueued("linear", cost_of({x, w, args.y}, x.dim(0), w.dim(0), x.dim(1)));
}

void linear_swiglu(const LinearSwigluArgs& args) {
  check_activations("linear_swiglu", args.x);
  if (args.y.numel() == 0) return;
  const Tensor x = matrix_operand(args.x), w = weight_as(args.x.dtype(), args.w);
  const SwigluProductArgs product{x, w, args.y};
  if (swiglu_product_fits(product) && swiglu_product_pays(product)) return swiglu_product(product);
  const int64_t hidden = args.y.dim(1);
  const Tensor u = Tensor::like(x, {x.dim(0), 2 * hidden});
  linear({x, w, nullptr, u});
  swiglu({u.narrowed(1, 0, hidden), u.narrowed(1, hidden, hidden), args.y});
}

void linear_grad_input(const LinearGradInputArgs& args) {
  check_activations("linear_grad_input", args.dy);
  if (args.dx.numel() == 0) return;
  CudaStream& stream = stream_for(args.dx);
  const Tensor dy = matrix_operand(args.dy), w = weight_as(args.dy.dtype(), args.w);
  stream.cublas().multiply({.a = matrix_of(dy), .b = matrix_of(w), .y = matrix_of(args.dx)});
  stream.enqueued("linear_grad_input", cost_of({dy, w, args.dx}, dy.dim(0), w.dim(1), dy.dim(1)));
}

void linear_grad_weight(const LinearGradWeightArgs& args) {
  check_activations("linear_grad_weight", args.dy);
  if (args.dw.numel() == 0) return;
  CudaStream& stream = stream_for(args.dw);
  const Tensor dy = matrix_operand(args.dy), x = matrix_operand(args.x);
  // The product is written in the activations' dtype or F32; another weight dtype is converted from F32.
  const bool direct = args.dw.dtype() == args.dy.dtype() || args.dw.dtype() == DType::F32;
  const Tensor dw = direct ? args.dw : Tensor::like(args.dw, DType::F32, args.dw.shape());
  stream.cublas().multiply({.a = matrix_of(dy), .b = matrix_of(x), .y = matrix_of(dw), .transpose_a = true});
  stream.enqueued("linear_grad_weight", cost_of({dy, x, dw}, dy.dim(1), x.dim(1), dy.dim(0)));
  if (!direct) args.dw.copy_from(dw);
}

void product_add(const ProductAddArgs& args) {
  check_activations("product_add", args.x);
  if (args.y.numel() == 0) return;
  CudaStream& stream = stream_for(args.y);
  const Tensor x = matrix_operand(args.x), w = weight_as(args.x.dtype(), args.w);
  stream.cublas().multiply({.a = matrix_of(x),
                            .b = matrix_of(w),
                            .y = matrix_of(args.y),
                            .transpose_b = args.transposed,
                            .factor = static_cast<float>(args.factor),
                            .add = true});
  stream.enqueued("product_add", cost_of({x, w, args.y}, x.dim(0), args.y.dim(1), x.dim(1)));
}

}  // namespace flux2::cuda
