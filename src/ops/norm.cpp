#include "ops/norm.h"

#include "autograd/grad.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/linear.h"

namespace flux2 {

Tensor layer_norm(const Tensor& x, float eps) {
  Tensor y = Tensor::like(x);
  if (y.numel() > 0) x.device().kernels().layer_norm({x, y, eps});
  return record("layer_norm", std::move(y), {x}, [x = x.detached(), eps](const Tensor& dy, GradSink& sink) {
    Tensor dx = Tensor::like(x);
    x.device().kernels().layer_norm_grad({x, dy, dx, eps});
    sink.add(0, dx);
  });
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, float eps) {
  require(weight.shape() == Shape{x.dim(-1)}, "rms_norm: weight {} for input {}", weight.shape(), x.shape());
  Tensor y = Tensor::like(x);
  if (y.numel() > 0) x.device().kernels().rms_norm({x, weight, y, eps});
  return record("rms_norm", std::move(y), {x, weight},
                [x = x.detached(), weight = weight.detached(), eps](const Tensor& dy, GradSink& sink) {
                  Tensor dx, dweight;
                  if (sink.wants(0)) dx = Tensor::like(x);
                  if (sink.wants(1)) dweight = Tensor::like(x, weight.dtype(), weight.shape());
                  x.device().kernels().rms_norm_grad(
                      {x, weight, dy, dx.defined() ? &dx : nullptr, dweight.defined() ? &dweight : nullptr, eps});
                  if (dx.defined()) sink.add(0, dx);
                  if (dweight.defined()) sink.add(1, dweight);
                });
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, const NormOptions& options) {
  if (wants_grad(x, weight) || !options.as || *options.as == x.dtype()) return rms_norm(x, weight, options.eps);
  require(weight.shape() == Shape{x.dim(-1)}, "rms_norm: weight {} for input {}", weight.shape(), x.shape());
  Tensor y = result_like(x, *options.as, x.shape());
  if (y.numel() > 0) x.device().kernels().rms_norm({x, weight, y, options.eps});
  return y;
}

Tensor modulated_norm(const Tensor& x, const Tensor& shift, const Tensor& scale, const NormOptions& options) {
  const float eps = options.eps;
  const Kernels& kernels = x.device().kernels();
  auto* fused = kernels.modulated_norm;
  if (!fused || (wants_grad(x, shift, scale) && !kernels.modulated_norm_grad)) return (1.0 + scale) * layer_norm(x, eps) + shift;
  require(x.rank() == 3 && shift.shape() == x.shape().with(1, 1) && scale.shape() == shift.shape(),
          "modulated_norm: shift {} and scale {} for input {}", shift.shape(), scale.shape(), x.shape());
  Tensor y = wants_grad(x, shift, scale) ? Tensor::like(x) : result_like(x, options.as.value_or(x.dtype()), x.shape());
  if (y.numel() > 0) fused({x, shift, scale, y, eps});
  return record("modulated_norm", std::move(y), {x, shift, scale},
                [x = x.detached(), scale = scale.detached(), eps](const Tensor& dy, GradSink& sink) {
                  if (sink.wants(0)) {
                    const Tensor dx = Tensor::like(x);
                    Tensor sum = sink.take_sum(0);  // that of the residual stream
                    if (sum.defined() && sum.dim(-1) > 1 && sum.stride(-1) != 1) sum = sum.contiguous();
                    x.device().kernels().modulated_norm_grad({x, scale, dy, sum.defined() ? &sum : nullptr, dx, eps});
                    sink.add(0, dx);
                  }
                  if (auto* both = x.device().kernels().modulation_grad; both && sink.wants(2)) {
                    const Tensor dshift = Tensor::like(dy, scale.shape()), dscale = Tensor::like(dshift);
                    both({dy, x, &dshift, dscale, true, eps});
                    sink.add(2, dscale);
                    if (sink.wants(1)) sink.add(1, dshift);
                    return;
                  }
                  if (sink.wants(1)) sink.add(1, sum_to(dy, scale.shape()));
                  if (sink.wants(2)) sink.add(2, sum_of_products(dy, layer_norm(widened(x), eps), scale.shape()));
                });
}

SumAndNorm gated_add_norm(const Tensor& x, const Tensor& gate, const Tensor& z, const Tensor& shift, const Tensor& scale,
                          const NormOptions& options) {
  auto* fused = x.device().kernels().gated_add_norm;
  if (!fused || wants_grad(x, gate, z, shift, scale)) {
    const Tensor sum = gated_add(x, gate, z);
    return {sum, modulated_norm(sum, shift, scale, options)};
  }
  const Shape per_batch = x.shape().with(1, 1);
  require(x.rank() == 3 && z.shape() == x.shape() && gate.shape() == per_batch && shift.shape() == per_batch &&
              scale.shape() == per_batch,
          "gated_add_norm: {} + {} · {}, shift {}, scale {}", x.shape(), gate.shape(), z.shape(), shift.shape(), scale.shape());
  SumAndNorm result{Tensor::like(x), result_like(x, options.as.value_or(x.dtype()), x.shape())};
  if (x.numel() > 0) fused({x, gate, z, shift, scale, result.sum, result.normed, options.eps});
  return result;
}

namespace {

Tensor group_norm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, int groups, float eps, bool silu_too) {
  require(groups > 0 && x.dim(-1) % groups == 0, "group_norm: {} channels do not form {} groups", x.dim(-1), groups);
  require(weight.shape() == Shape{x.dim(-1)} && bias.shape() == weight.shape(), "group_norm: weight {} for input {}",
          weight.shape(), x.shape());
  Tensor y = Tensor::like(x);
  if (y.numel() > 0) x.device().kernels().group_norm({x, weight, bias, y, groups, eps, silu_too});
  return y;
}

}  // namespace

Tensor group_norm(const Tensor& x_any, const Tensor& weight, const Tensor& bias, int groups, float eps) {
  const Tensor x = x_any.contiguous().with_grad(x_any.grad());
  return record("group_norm", group_norm_forward(x, weight, bias, groups, eps, false), {x, weight, bias},
                [x = x.detached(), weight = weight.detached(), groups, eps](const Tensor& dy, GradSink& sink) {
                  Tensor dx = Tensor::like(x);
                  Tensor dweight = Tensor::like(x, weight.dtype(), weight.shape()), dbias = Tensor::like(dweight);
                  x.device().kernels().group_norm_grad({x, weight, dy.contiguous(), dx, dweight, dbias, groups, eps});
                  sink.add(0, dx);
                  sink.add(1, dweight);
                  sink.add(2, dbias);
                });
}

Tensor group_norm_silu(const Tensor& x, const Tensor& weight, const Tensor& bias, int groups, float eps) {
  if (wants_grad(x, weight, bias)) return silu(group_norm(x, weight, bias, groups, eps));
  return group_norm_forward(x.contiguous(), weight, bias, groups, eps, true);
}

}  // namespace flux2
