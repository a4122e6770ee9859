#pragma once

#include <initializer_list>
#include <vector>

#include "tensor/tensor.h"

namespace flux2 {

// Views share memory with their source; concat, cast and contiguous copy when they must. All carry gradients.
Tensor reshape(const Tensor& x, const Shape& shape);
Tensor permute(const Tensor& x, std::initializer_list<int> axes);
Tensor narrow(const Tensor& x, int axis, int64_t start, int64_t length);
Tensor contiguous(const Tensor& x);
Tensor cast(const Tensor& x, DType dtype);

// Cuts `axis` (the last unless named) into pieces of these sizes.
std::vector<Tensor> split(const Tensor& x, std::initializer_list<int64_t> sizes, int axis = -1);
std::vector<Tensor> chunk(const Tensor& x, int parts, int axis = -1);  // equal pieces

Tensor concat(const std::vector<Tensor>& parts, int axis = -1);

}  // namespace flux2
