#pragma once

#include "tensor/tensor.h"

namespace flux2 {

// Whether somebody reads the values of a result. When a block runs a second time for its gradient (checkpoint()), nobody reads
// what its last ops compute: with Unused, they record their gradient and leave the result uninitialised.
enum class Values { Needed, Unused };

// y = x · wᵀ + bias over the last axis: x [..., K], w [N, K], bias [N] or undefined. w may be stored in any dtype, quantised
// blocks included; y has the dtype of x, or BF16 where x is quantised (see below). A weight that needs a gradient must have a
// float type.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias = {}, Values values = Values::Needed);

// swiglu(linear(x, w)) for w [2M, K] = [gate | up].
Tensor linear_swiglu(const Tensor& x, const Tensor& w);
// Whether this device has a single kernel for it, which never stores gate and up. Then it pays to compute the gate and up rows of
// a fused weight as a separate product.
bool fuses_swiglu(const Tensor& x, const Tensor& w);

// [..., K] as a matrix [M, K], without gradient: a view where the rows are evenly spaced, else a copy.
Tensor matrix_rows(const Tensor& x);

// Quantised activations are e4m3 or int8 values with one scale per token. On a device that multiplies such values, the op before
// a product can quantise its result; `linear` accepts both forms.

// The dtype of x with which linear(x, w) is fastest: that of w if the device multiplies in it, no gradient is needed and x has
// several rows, otherwise the dtype of x.
DType input_dtype(const Tensor& x, const Tensor& w);

// x [..., K] in that dtype; x itself if it has that dtype already.
Tensor as_input(const Tensor& x, DType dtype);

// Memory for a result of that dtype, with scales if it is quantised.
Tensor result_like(const Tensor& x, DType dtype, const Shape& shape);

}  // namespace flux2
