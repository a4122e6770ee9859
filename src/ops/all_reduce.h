#pragma once

#include "tensor/communicator.h"
#include "tensor/tensor.h"

namespace flux2 {

// The sum of x over all ranks, on every rank: the end of a product whose input features are spread over ranks.
// What follows is the same on every rank, so the gradient of each rank's part is the gradient of the sum.
Tensor all_reduce(const Tensor& x, Communicator& ranks);

// x itself; its gradient is summed over the ranks. Stands before a product whose output features are spread over
// ranks, where each rank sees only its share of what x is used for.
Tensor spread(const Tensor& x, Communicator& ranks);

}  // namespace flux2
