#pragma once

#include "ops/linear.h"
#include "tensor/tensor.h"

namespace flux2 {

// Element by element; shapes broadcast as in NumPy. Both operands have the same float dtype.
Tensor operator+(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, const Tensor& b);

Tensor operator*(double factor, const Tensor& x);
Tensor operator+(double offset, const Tensor& x);
Tensor affine(const Tensor& x, double factor, double offset);  // factor · x + offset

// x + gate · z, the end of every residual block; gate [B, 1, C] for x, z [B, S, C].
Tensor gated_add(const Tensor& x, const Tensor& gate, const Tensor& z, Values values = Values::Needed);

// Sums over the axes on which `shape` has extent 1 (or which it lacks in front): the gradient of broadcasting.
Tensor sum_to(const Tensor& x, const Shape& shape);
// sum_to(a · b) without gradient, the terms rounded no further than F32; of a's dtype.
Tensor sum_of_products(const Tensor& a, const Tensor& b, const Shape& shape);
Tensor widened(const Tensor& x);  // without gradient: F32 where x is narrower

Tensor sum(const Tensor& x);   // all elements, shape []
Tensor mean(const Tensor& x);  // all elements, shape []

}  // namespace flux2
