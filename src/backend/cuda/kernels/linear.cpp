#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/matrix.h"
#include "backend/cuda/kernels/parts.h"

namespace flux2::cuda {

namespace {

// An operand in the dtype of the product. What is stored in another, quantised weights above all, is dequantised into memory of
// the stream for the time of one product.
Tensor operand_as(DType dtype, const Tensor& t) {
  if (t.dtype() == dtype || is_float(t.dtype()) || !t.is_contiguous()) return matrix_operand(t.cast(dtype));
  const Tensor plain = Tensor::like(t, dtype, t.shape());
  dequantise(t, plain);
  return plain;
}

void check_activations(const char* op, const Tensor& x) {
  if (x.dtype() != DType::F32 && x.dtype() != DType::BF16) refuse_dtype(op, x.dtype());
}

// With gate and up stored between the two steps.
void swiglu_after_linear(const Tensor& x, const Tensor& w, const Tensor& y) {
  const int64_t hidden = y.dim(1);
  const Tensor u = Tensor::like(x, {x.dim(0), 2 * hidden});
  linear({x, w, nullptr, u});
  swiglu({u.narrowed(1, 0, hidden), u.narrowed(1, hidden, hidden), y});
}

}  // namespace

OpCost product_cost(const Tensor& a, const Tensor& b, const Tensor& y, const ProductSize& size) {
  const auto [rows, columns, inner] = size;
  return {.flop = 2.0 * static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(inner),
          .bytes = traffic({&a, &b, &y}),
          .rows = rows,
          .columns = columns,
          .inner = inner};
}

Tensor matrix_operand(const Tensor& t) {
  const bool rows_contiguous = t.dim(1) == 1 || t.stride(1) == 1;
  const bool rows_apart = t.dim(0) == 1 || t.stride(0) >= t.dim(1);
  return rows_contiguous && rows_apart ? t : t.cloned();
}

Matrix matrix_of(const Tensor& t) { return {t.raw(), t.dtype(), t.dim(0), t.dim(1), t.dim(0) == 1 ? t.dim(1) : t.stride(0)}; }

void linear(const LinearArgs& args) {
  check_activations("linear", args.y);
  if (args.y.numel() == 0) return;
  if (one_row_product_fits(args)) return one_row_product(args);
  if (eight_bit_product_fits(args)) return eight_bit_product(args);
  CudaStream& stream = stream_for(args.y);
  const Tensor x = operand_as(args.y.dtype(), args.x), w = operand_as(args.y.dtype(), args.w);
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
  stream.enqueued("linear", product_cost(x, w, args.y, {x.dim(0), w.dim(0), x.dim(1)}));
}

void linear_swiglu(const LinearSwigluArgs& args) {
  check_activations("linear_swiglu", args.x);
  if (args.y.numel() == 0) return;
  if (args.x.dim(0) == 1) return swiglu_after_linear(args.x, args.w, args.y);  // one row reads the weights as they are stored
  const Tensor x = matrix_operand(args.x), w = operand_as(args.x.dtype(), args.w);
  const SwigluProductArgs product{x, w, args.y};
  if (swiglu_product_fits(product) && swiglu_product_pays(product)) return swiglu_product(product);
  swiglu_after_linear(x, w, args.y);
}

void linear_grad_input(const LinearGradInputArgs& args) {
  check_activations("linear_grad_input", args.dy);
  if (args.dx.numel() == 0) return;
  if (eight_bit_gradient_fits(args)) return eight_bit_gradient(args);
  CudaStream& stream = stream_for(args.dx);
  const Tensor dy = matrix_operand(args.dy), w = operand_as(args.dy.dtype(), args.w);
  stream.cublas().multiply({.a = matrix_of(dy), .b = matrix_of(w), .y = matrix_of(args.dx)});
  stream.enqueued("linear_grad_input", product_cost(dy, w, args.dx, {dy.dim(0), w.dim(1), dy.dim(1)}));
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
  stream.enqueued("linear_grad_weight", product_cost(dy, x, dw, {dy.dim(1), x.dim(1), dy.dim(0)}));
  if (!direct) args.dw.copy_from(dw);
}

void product_add(const ProductAddArgs& args) {
  check_activations("product_add", args.x);
  if (args.y.numel() == 0) return;
  if (args.factor == 1.0) {
    if (const LinearArgs product{args.x, args.w, nullptr, args.y}; args.transposed && eight_bit_product_fits(product))
      return eight_bit_product_add(product);
    if (const LinearGradInputArgs product{args.x, args.w, args.y}; !args.transposed && eight_bit_gradient_fits(product))
      return eight_bit_gradient_add(product);
  }
  CudaStream& stream = stream_for(args.y);
  const Tensor x = matrix_operand(args.x), w = operand_as(args.x.dtype(), args.w);
  stream.cublas().multiply({.a = matrix_of(x),
                            .b = matrix_of(w),
                            .y = matrix_of(args.y),
                            .transpose_b = args.transposed,
                            .factor = static_cast<float>(args.factor),
                            .add = true});
  stream.enqueued("product_add", product_cost(x, w, args.y, {x.dim(0), args.y.dim(1), x.dim(1)}));
}

void adapter_grad(const AdapterGradArgs& args) {
  check_activations("adapter_grad", args.dy);
  if (args.dy.numel() > 0 && adapter_gradient_fits(args) && adapter_gradient_pays(args)) return adapter_gradient(args);
  linear_grad_weight({args.dy, args.inner, args.dup});
  linear_grad_input({args.dy, args.up, args.du});
  if (args.factor != 1.0) scale({args.du, args.du, args.factor, 0.0});
}

}  // namespace flux2::cuda
