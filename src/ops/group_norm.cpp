#include "ops/group_norm.h"

#include "autograd/grad.h"
#include "ops/activation.h"

namespace flux2 {

namespace {

Tensor forward(const Tensor& x, const Tensor& weight, const Tensor& bias, int groups, float eps, bool silu_too) {
  require(x.dim(-1) % groups == 0, "group_norm: {} channels do not form {} groups", x.dim(-1), groups);
  require(weight.shape() == Shape{x.dim(-1)} && bias.shape() == weight.shape(), "group_norm: weight {} for input {}",
          weight.shape(), x.shape());
  Tensor y = Tensor::like(x);
  if (y.numel() > 0) x.device().kernels().group_norm({x, weight, bias, y, groups, eps, silu_too});
  return y;
}

}  // namespace

Tensor group_norm(const Tensor& x_any, const Tensor& weight, const Tensor& bias, int groups, float eps) {
  const Tensor x = x_any.contiguous().with_grad(x_any.grad());
  return record("group_norm", forward(x, weight, bias, groups, eps, false), {x, weight, bias},
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
  return forward(x.contiguous(), weight, bias, groups, eps, true);
}

}  // namespace flux2
