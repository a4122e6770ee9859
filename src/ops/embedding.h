#pragma once

#include "tensor/tensor.h"

namespace flux2 {

// Rows of table [V, C] (any storage dtype) for ids I32 [...]: a float tensor [..., C] of the given dtype.
Tensor embedding(const Tensor& ids, const Tensor& table, DType dtype);

}  // namespace flux2
