#include "ops/conv2d.h"

#include "autograd/grad.h"
#include "ops/arithmetic.h"
#include "ops/empty.h"
#include "ops/view.h"

namespace flux2 {

namespace {

void check_bias(const Tensor& weight, const Tensor& bias) {
  require(!bias.defined() || bias.shape() == Shape{weight.dim(0)}, "conv2d: bias {} for a weight of shape {}",
          bias.defined() ? bias.shape() : Shape{}, weight.shape());
}

Shape output_shape(const Tensor& x, const Tensor& weight, const Tensor& bias, int stride, const Padding& padding) {
  require(x.rank() == 4 && weight.rank() == 4 && weight.dim(3) == x.dim(3), "conv2d: input {} for a weight of shape {}",
          x.shape(), weight.shape());
  check_bias(weight, bias);
  require(stride > 0, "conv2d: a stride of {}", stride);
  require(x.dim(1) > 0 && x.dim(2) > 0, "conv2d: an image of shape {} has no pixels", x.shape());
  const int64_t height = x.dim(1) + padding.top + padding.bottom - weight.dim(1);
  const int64_t width = x.dim(2) + padding.left + padding.right - weight.dim(2);
  require(height >= 0 && width >= 0, "conv2d: input {} is smaller than the kernel {}", x.shape(), weight.shape());
  const Shape result{x.dim(0), height / stride + 1, width / stride + 1, weight.dim(0)};
  require_terms("conv2d", weight.shape().with(0, 1).numel(), result);
  return result;
}

}  // namespace

Tensor conv2d(const Tensor& x_any, const Tensor& weight, const Tensor& bias, int stride, const Padding& padding) {
  const Shape shape = output_shape(x_any, weight, bias, stride, padding);
  const Tensor x = contiguous(x_any);
  const ConvShape conv{stride, padding.top, padding.left};

  Tensor y = Tensor::like(x, shape);
  if (y.numel() > 0) x.device().kernels().conv2d({x, weight, bias.defined() ? &bias : nullptr, y, conv});
  return record(
      "conv2d", std::move(y), {x, weight, bias},
      [x = x.detached(), weight = weight.detached(), bias = bias.detached(), conv](const Tensor& dy_any, GradSink& sink) {
        const Tensor dy = dy_any.contiguous();
        const Kernels& kernels = x.device().kernels();
        if (sink.wants(0)) {
          Tensor dx = Tensor::like(x);
          kernels.conv2d_grad_input({dy, weight, dx, conv});
          sink.add(0, dx);
        }
        if (sink.wants(1)) {
          Tensor dw = Tensor::like(x, weight.dtype(), weight.shape());
          kernels.conv2d_grad_weight({dy, x, dw, conv});
          sink.add(1, dw);
        }
        if (sink.wants(2)) sink.add(2, sum_to(dy, bias.shape()).cast(bias.dtype()));
      });
}

Tensor conv2d_add(const Tensor& x, const Tensor& weight, const Tensor& bias, int stride, const Padding& padding,
                  const Tensor& residual) {
  const Shape shape = output_shape(x, weight, bias, stride, padding);
  require(residual.shape() == shape, "conv2d_add: a residual of shape {} for a result of shape {}", residual.shape(), shape);
  const auto fused = x.device().kernels().conv2d_add;
  if (!fused || wants_grad(x, weight, bias, residual)) return residual + conv2d(x, weight, bias, stride, padding);
  const ConvShape conv{stride, padding.top, padding.left};
  Tensor y = Tensor::like(x, shape);
  if (y.numel() > 0) fused({contiguous(x), weight, bias.defined() ? &bias : nullptr, contiguous(residual), y, conv});
  return y;
}

Tensor upsample_nearest(const Tensor& x_any) {
  require(x_any.rank() == 4, "upsample_nearest: input {}", x_any.shape());
  const Tensor x = contiguous(x_any);
  Tensor y = Tensor::like(x, {x.dim(0), 2 * x.dim(1), 2 * x.dim(2), x.dim(3)});
  if (y.numel() > 0) x.device().kernels().upsample({x, y});
  return record("upsample_nearest", std::move(y), {x}, [from = x.shape()](const Tensor& dy, GradSink& sink) {
    Tensor dx = Tensor::like(dy, from);
    dy.device().kernels().upsample_grad({dy.contiguous(), dx});
    sink.add(0, dx);
  });
}

Tensor upsample_conv2d(const Tensor& x_any, const Tensor& weight, const Tensor& bias) {
  const auto fused = x_any.device().kernels().upsample_conv2d;
  if (!fused || wants_grad(x_any, weight, bias)) return conv2d(upsample_nearest(x_any), weight, bias, 1, {1, 1, 1, 1});
  require(x_any.rank() == 4 && weight.rank() == 4 && weight.dim(1) == 3 && weight.dim(2) == 3 && weight.dim(3) == x_any.dim(3),
          "upsample_conv2d: input {} for a weight of shape {}", x_any.shape(), weight.shape());
  check_bias(weight, bias);
  require(x_any.dim(1) > 0 && x_any.dim(2) > 0, "upsample_conv2d: an image of shape {} has no pixels", x_any.shape());
  const Tensor x = contiguous(x_any);
  Tensor y = Tensor::like(x, {x.dim(0), 2 * x.dim(1), 2 * x.dim(2), weight.dim(0)});
  require_terms("upsample_conv2d", x.dim(3), y.shape());
  if (y.numel() > 0) fused({x, weight, bias.defined() ? &bias : nullptr, y});
  return y;
}

}  // namespace flux2
