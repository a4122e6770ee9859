#pragma once

#include "tensor/tensor.h"

namespace flux2 {

// Zero padding on the four sides of a picture.
struct Padding {
  int top = 0, bottom = 0, left = 0, right = 0;
};

// x [B, H, W, C], weight [O, kh, kw, C], bias [O] or undefined → [B, H', W', O], channels last throughout.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, int stride, const Padding& padding);

// Nearest neighbour: every pixel of x [B, H, W, C] becomes four.
Tensor upsample_nearest(const Tensor& x);

}  // namespace flux2
