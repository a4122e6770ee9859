#pragma once

#include "tensor/communicator.h"
#include "tensor/tensor.h"

namespace flux2 {

// The sum of x over all ranks, on every rank: the end of a product whose input features are spread over ranks.
// What follows is the same on every rank, so the gradient of each rank's part is the gradient of the sum.
Tensor all_reduce(const Tensor& x, Communicator& ranks);

// Returns x; its gradient is summed over the ranks. Used before a product whose output features are spread over ranks, because
// each rank computes only its share of the gradient of x.
Tensor spread(const Tensor& x, Communicator& ranks);

}  // namespace flux2
