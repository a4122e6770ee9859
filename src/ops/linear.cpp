#include "ops/linear.h"

#include "autograd/grad.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/empty.h"

namespace flux2 {

Tensor matrix_rows(const Tensor& x) {
  bool even = x.rank() < 1 || x.dim(-1) <= 1 || x.stride(-1) == 1;
  for (int i = 0; i + 2 < x.rank(); ++i) even = even && x.stride(i) == x.stride(i + 1) * x.dim(i + 1);
  return (even ? x : x.contiguous()).reshaped({x.numel() / std::max<int64_t>(x.dim(-1), 1), x.dim(-1)});
}

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias, Values values) {
  require(w.rank() == 2 && x.dim(-1) == w.dim(1), "linear: input {} for a weight of shape {}", x.shape(), w.shape());
  require(!bias.defined() || bias.shape() == Shape{w.dim(0)}, "linear: bias {} for a weight of shape {}",
          bias.defined() ? bias.shape() : Shape{}, w.shape());
  Tensor y = Tensor::like(x, is_float(x.dtype()) ? x.dtype() : DType::BF16, x.shape().with(-1, w.dim(0)));
  require_terms("linear", w.dim(1), y.shape());
  const Tensor flat = matrix_rows(x);
  if (y.numel() > 0 && values == Values::Needed)
    x.device().kernels().linear({flat, w, bias.defined() ? &bias : nullptr, matrix_rows(y)});
  // x is kept only for the gradient of the weight: a frozen layer keeps no activations.
  return record("linear", std::move(y), {x, w, bias},
                [kept = wants_grad(w) ? flat : Tensor(), shape = x.shape(), w = w.detached(), bias = bias.detached()](
                    const Tensor& dy, GradSink& sink) {
                  const Tensor d = matrix_rows(dy);
                  const Kernels& kernels = d.device().kernels();
                  if (sink.wants(0)) {
                    Tensor dx = Tensor::like(d, {d.dim(0), w.dim(1)});
                    kernels.linear_grad_input({d, w, dx});
                    sink.add(0, dx.reshaped(shape));
                  }
                  if (sink.wants(1)) {
                    Tensor dw = Tensor::like(d, w.dtype(), w.shape());
                    kernels.linear_grad_weight({d, kept, dw});
                    sink.add(1, dw);
                  }
                  if (sink.wants(2)) sink.add(2, sum_to(d, bias.shape()).cast(bias.dtype()));
                });
}

// With 8-bit values, the library's product that stores gate and up is faster, because the next kernel reads them anyway to round
// the result.
bool fuses_swiglu(const Tensor& x, const Tensor& w) {
  const bool in_8_bits = !is_float(x.dtype()) || input_dtype(x, w) != x.dtype();
  return x.device().kernels().linear_swiglu && !wants_grad(x, w) && !in_8_bits;
}

Tensor linear_swiglu(const Tensor& x, const Tensor& w) {
  if (!fuses_swiglu(x, w)) return swiglu(linear(x, w));
  require(w.rank() == 2 && x.dim(-1) == w.dim(1) && w.dim(0) % 2 == 0, "linear_swiglu: input {} for a weight of shape {}",
          x.shape(), w.shape());
  Tensor y = Tensor::like(x, x.shape().with(-1, w.dim(0) / 2));
  require_terms("linear_swiglu", w.dim(1), y.shape());
  if (y.numel() > 0) x.device().kernels().linear_swiglu({matrix_rows(x), w, matrix_rows(y)});
  return y;
}

// The product of one row reads any weights and rounds nothing.
DType input_dtype(const Tensor& x, const Tensor& w) {
  const bool both = x.dtype() == DType::BF16 && x.numel() > x.dim(-1) && x.device().multiplies(w.dtype());
  return both && !wants_grad(x, w) ? w.dtype() : x.dtype();
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
