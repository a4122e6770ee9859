#pragma once

#include "tensor/tensor.h"

namespace flux2 {

// Activations in 8 bits are e4m3 values with a scale for each token. On a device that multiplies such numbers the op in front
// of a product rounds its result to them, if it is asked to; `linear` takes both forms.

// How `x` is best handed to linear(x, w): F8_E4M3 where both can be multiplied in 8 bits and nobody wants a gradient, else as
// it is.
DType input_dtype(const Tensor& x, const Tensor& w);

// x [..., K] in that form; itself when it is already.
Tensor as_input(const Tensor& x, DType dtype);

// Room for a result that is stored as `dtype`, with its scales when that has 8 bits.
Tensor result_like(const Tensor& x, DType dtype, const Shape& shape);

}  // namespace flux2
