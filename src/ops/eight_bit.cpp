#include "ops/eight_bit.h"

#include "autograd/grad.h"
#include "ops/linear.h"

namespace flux2 {

DType input_dtype(const Tensor& x, const Tensor& w) {
  const bool both = x.dtype() == DType::BF16 && w.dtype() == DType::F8_E4M3 && x.device().kernels().quantise;
  return both && !wants_grad(x, w) ? DType::F8_E4M3 : x.dtype();
}

Tensor as_input(const Tensor& x, DType dtype) {
  if (dtype == x.dtype()) return x;
  const Tensor y = result_like(x, dtype, x.shape());
  const Tensor rows = matrix_rows(x);
  if (y.numel() > 0) x.device().kernels().quantise({rows, y.reshaped(rows.shape())});
  return y;
}

Tensor result_like(const Tensor& x, DType dtype, const Shape& shape) {
  const Tensor y = Tensor::like(x, dtype, shape);
  return is_float(dtype) ? y : y.with_scales(Tensor::like(x, DType::F32, shape.first(shape.rank() - 1)));
}

}  // namespace flux2
