#include "ops/conv2d_onto.h"

#include "ops/conv2d.h"

namespace flux2 {

namespace {

// Whether the pixels of an image lie evenly spaced, each with its channels side by side.
bool is_evenly_spaced(const Tensor& y) {
  return y.stride(3) == 1 && (y.dim(1) == 1 || y.stride(1) == y.dim(2) * y.stride(2)) &&
         (y.dim(0) == 1 || y.stride(0) == y.dim(1) * y.stride(1));
}

}  // namespace

void conv2d_onto(const Tensor& y, const Tensor& x_any, const Tensor& weight) {
  require(x_any.rank() == 4 && y.shape() == x_any.shape().with(3, weight.dim(0)) && y.dtype() == x_any.dtype() &&
              weight.shape() == Shape{weight.dim(0), 3, 3, x_any.dim(3)},
          "conv2d_onto: input {} and a weight of shape {} onto {}", x_any.shape(), weight.shape(), y.shape());
  if (y.numel() == 0) return;
  const Tensor x = x_any.detached().contiguous();
  const Kernels& kernels = x.device().kernels();
  // GPU kernels write whole images only.
  if (kernels.conv2d_add && x.device().is_host() && y.dtype() != DType::F64 && is_evenly_spaced(y))
    return kernels.conv2d_add({x, weight, nullptr, y, y, {1, 1, 1}});
  kernels.binary({Binary::Add, y, conv2d(x, weight.detached(), {}, 1, {1, 1, 1, 1}), y});
}

}  // namespace flux2
