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

Tensor rounded(const Tensor& x) {
  const Tensor y = Tensor::like(x, DType::F8_E4M3, x.shape()).with_scales(Tensor::like(x, DType::F32, {x.dim(0)}));
  quantise({x, y});
  return y;
}

}  // namespace

bool fp8_product_fits(const LinearArgs& args) {
  const Tensor &x = args.x, &w = args.w, &y = args.y;
  return w.dtype() == DType::F8_E4M3 && y.dtype() == DType::BF16 && !args.bias && y.device().kernels().quantise &&
         is_even(w, 16) && is_even(y, 8) && w.dim(0) % 16 == 0 &&
         (x.dtype() == DType::BF16 || (x.dtype() == DType::F8_E4M3 && is_even(x, 16)));
}

void fp8_product(const LinearArgs& args) {
  CudaStream& stream = stream_for(args.y);
  const Tensor x = args.x.dtype() == DType::BF16 ? rounded(matrix_operand(args.x)) : args.x;
  const Tensor x_scales = row_scales(x, stream), w_scales = row_scales(args.w, stream);
  stream.cublas().multiply({.a = matrix_of(x),
                            .b = matrix_of(args.w),
                            .y = matrix_of(args.y),
                            .transpose_b = true,
                            .a_scales = x_scales.data<float>(),
                            .b_scales = w_scales.data<float>()});
  stream.enqueued("linear fp8", product_cost(x, args.w, args.y, {x.dim(0), args.w.dim(0), x.dim(1)}));
}

}  // namespace flux2::cuda
