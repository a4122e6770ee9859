#pragma once

#include "tensor/tensor.h"

namespace flux2 {

// Zero padding on the four sides of an image.
struct Padding {
  int top = 0, bottom = 0, left = 0, right = 0;
};

// x [B, H, W, C], weight [O, kh, kw, C], bias [O] or undefined → [B, H', W', O], channels last throughout.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, int stride, const Padding& padding);

// residual + conv2d(x, …), in one pass if the device supports that.
Tensor conv2d_add(const Tensor& x, const Tensor& weight, const Tensor& bias, int stride, const Padding& padding,
                  const Tensor& residual);

// Nearest neighbour: every pixel of x [B, H, W, C] becomes four.
Tensor upsample_nearest(const Tensor& x);

// conv2d(upsample_nearest(x), weight, bias) with stride 1 and a border of one; weight [O, 3, 3, C]. If the device supports it,
// the upsampling is folded into the convolution, whose taps are then rounded after they were added.
Tensor upsample_conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias);

}  // namespace flux2
