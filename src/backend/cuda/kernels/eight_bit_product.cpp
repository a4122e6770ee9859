#include <algorithm>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/matrix.h"
#include "backend/cuda/kernels/parts.h"

namespace flux2::cuda {

namespace {

// Rows of 16 bytes each: what the library asks of 8-bit operands.
bool is_even(const Tensor& t, int64_t elements) {
  return t.dim(1) % elements == 0 && t.stride(1) == 1 && (t.dim(0) == 1 || t.stride(0) % elements == 0) &&
         is_aligned(t.raw(), 16);
}

// The factors of all rows, one each.
Tensor row_scales(const Tensor& t, Stream& stream) {
  const Tensor& scales = t.scales();
  if (scales.defined() && scales.numel() == t.dim(0)) return scales.contiguous();
  const Tensor all = Tensor::empty(stream, DType::F32, {t.dim(0)});
  if (scales.defined()) all.copy_from(scales.reshaped({1}).expanded(all.shape()));
  else all.fill(1.0);
  return all;
}

Tensor rounded(const Tensor& x, DType dtype) {
  const Tensor y = Tensor::like(x, dtype, x.shape()).with_scales(Tensor::like(x, DType::F32, {x.dim(0)}));
  quantise({x, y});
  return y;
}

Tensor quantised_input(const LinearArgs& args) {
  return args.x.dtype() == DType::BF16 ? rounded(matrix_operand(args.x), args.w.dtype()) : args.x;
}

// y[M, N] (+)= x[M, K] · w[N, K]ᵀ of e4m3 values with a scale for each row.
struct ScaledProduct {
  const Tensor &x, &x_scales, &w, &w_scales, &y;
};

void multiply(const char* op, const ScaledProduct& p, bool add) {
  CudaStream& stream = stream_for(p.y);
  const auto product_into = [&](const Tensor& y, bool adding) {
    return Cublas::Product{.a = matrix_of(p.x),
                           .b = matrix_of(p.w),
                           .y = matrix_of(y),
                           .transpose_b = true,
                           .add = adding,
                           .a_scales = p.x_scales.data<float>(),
                           .b_scales = p.w_scales.data<float>()};
  };
  const OpCost cost = product_cost(p.x, p.w, p.y, {p.x.dim(0), p.w.dim(0), p.x.dim(1)});
  const Tensor apart = add && !stream.cublas().multiply_if_possible(product_into(p.y, true)) ? Tensor::like(p.y) : Tensor();
  if (!add || apart.defined()) stream.cublas().multiply(product_into(apart.defined() ? apart : p.y, false));
  stream.enqueued(op, cost);
  if (apart.defined()) binary({Binary::Add, p.y, apart, p.y});
}

}  // namespace

bool eight_bit_product_fits(const LinearArgs& args) {
  const Tensor &x = args.x, &w = args.w, &y = args.y;
  return (w.dtype() == DType::F8_E4M3 || w.dtype() == DType::I8) && y.dtype() == DType::BF16 && !args.bias &&
         y.device().multiplies(w.dtype()) && is_even(w, 16) && is_even(y, 8) && w.dim(0) % 16 == 0 &&
         (x.dtype() == DType::BF16 || (x.dtype() == w.dtype() && is_even(x, 16)));
}

void eight_bit_product(const LinearArgs& args) {
  CudaStream& stream = stream_for(args.y);
  if (args.w.dtype() == DType::I8 || !stream.cublas().scales_rows()) return eight_bit_product_by_sums(args);
  const Tensor x = quantised_input(args);
  const Tensor x_scales = row_scales(x, stream), w_scales = row_scales(args.w, stream);
  multiply("linear fp8", {x, x_scales, args.w, w_scales, args.y}, false);
}

void eight_bit_product_add(const LinearArgs& args) {
  CudaStream& stream = stream_for(args.y);
  if (args.w.dtype() == DType::I8 || !stream.cublas().scales_rows()) return eight_bit_product_by_sums(args, true);
  const Tensor x = quantised_input(args);
  const Tensor x_scales = row_scales(x, stream), w_scales = row_scales(args.w, stream);
  multiply("product_add fp8", {x, x_scales, args.w, w_scales, args.y}, true);
}

void eight_bit_product_by_sums(const LinearArgs& args, bool add) {
  CudaStream& stream = stream_for(args.y);
  const bool integers = args.w.dtype() == DType::I8;
  const Tensor x = quantised_input(args);
  const Tensor x_scales = row_scales(x, stream), w_scales = row_scales(args.w, stream);
  const int64_t rows = x.dim(0), columns = args.w.dim(0), step = rows_of_sums(rows, columns);
  const Tensor sums = Tensor::like(args.y, integers ? DType::I32 : DType::F32, {step, columns});
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t count = std::min(step, rows - first);
    const Tensor part = sums.narrowed(0, 0, count), x_part = x.narrowed(0, first, count);
    stream.cublas().multiply({.a = matrix_of(x_part), .b = matrix_of(args.w), .y = matrix_of(part), .transpose_b = true});
    stream.enqueued(integers ? "linear int8" : "linear fp8", product_cost(x_part, args.w, part, {count, columns, x.dim(1)}));
    scale_sums({part, x_scales.narrowed(0, first, count), w_scales, args.y.narrowed(0, first, count), add});
  }
}

bool eight_bit_gradient_fits(const LinearGradInputArgs& args) {
  const Tensor &dy = args.dy, &w = args.w, &dx = args.dx;
  return w.dtype() == DType::F8_E4M3 && dy.dtype() == DType::BF16 && dx.dtype() == DType::BF16 &&
         dx.device().multiplies(w.dtype()) && stream_for(dx).cublas().scales_rows() && w.is_contiguous() && is_even(w, 16) &&
         w.dim(0) % 16 == 0 && is_even(dx, 8) && is_even(dy, 8);
}

namespace {

void gradient(const LinearGradInputArgs& args, bool add) {
  CudaStream& stream = stream_for(args.dx);
  const Tensor &dy = args.dy, &w = args.w;
  Tensor factors = row_scales(w, stream);
  if (!is_aligned(factors.raw(), 16)) factors = factors.cloned();
  const Tensor d = Tensor::like(dy, w.dtype(), dy.shape()).with_scales(Tensor::like(dy, DType::F32, {dy.dim(0)}));
  quantise_gradient({dy, factors, d});
  const Tensor turned = Tensor::like(dy, w.dtype(), {w.dim(1), w.dim(0)});
  transpose_bytes(w.with_scales({}), turned);
  const Tensor ones = row_scales(turned, stream);
  multiply(add ? "product_add fp8" : "linear_grad_input fp8", {d, d.scales(), turned, ones, args.dx}, add);
}

}  // namespace

void eight_bit_gradient(const LinearGradInputArgs& args) { gradient(args, false); }
void eight_bit_gradient_add(const LinearGradInputArgs& args) { gradient(args, true); }

}  // namespace flux2::cuda
