#pragma once

#include "base/error.h"
#include "tensor/tensor.h"

// The rule for tensors without elements. It is the same for every op and is tested for every case of tests/support/op_cases.cpp:
//
// 1. If the result has no elements, the op returns it and calls no kernel.
// 2. If the result has elements but each of them is computed from none, the op throws: a norm, a product, a convolution, an
//    attention or a mean over an axis of extent 0, a row of a table without rows. A convolution also needs an image with pixels.
//    Only a sum over nothing is defined; it is 0.
// 3. A gradient without elements is not passed on (autograd/grad.cpp), so no gradient kernel sees an empty tensor.
//
// Kernels may therefore divide by the extents of their arguments. The extents of weights are checked when a file is opened
// (nn/load.h), so a damaged file is refused by the name of its tensor and never comes this far.
namespace flux2 {

// Rule 2: `terms` is the number of elements that each element of the result is computed from.
inline void require_terms(const char* op, int64_t terms, const Shape& result) {
  require(terms > 0 || result.numel() == 0, "{}: a result of shape {} would be computed from no elements", op, result);
}

}  // namespace flux2
