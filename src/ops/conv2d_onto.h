#pragma once

#include "tensor/tensor.h"

namespace flux2 {

// y += conv2d(x, weight) with stride 1 and a border of one, in place and without gradient; weight [O, 3, 3, C]. y [B, H, W, O]
// may be a range of the channels of a wider image.
void conv2d_onto(const Tensor& y, const Tensor& x, const Tensor& weight);

}  // namespace flux2
