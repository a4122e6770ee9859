#include "ops/flow_loss.h"

#include "ops/arithmetic.h"

namespace flux2 {

FlowLossTensors flow_mse(const Tensor& velocity, const Tensor& target, const Tensor& weight, double divisor) {
  require(velocity.rank() == 3 && velocity.shape() == target.shape() && velocity.dtype() == DType::F32,
          "flow_mse: velocity {} and target {}", velocity.shape(), target.shape());
  require(weight.rank() == 3 && weight.dim(0) == velocity.dim(0) && weight.dim(2) == 1 &&
              (weight.dim(1) == 1 || weight.dim(1) == velocity.dim(1)),
          "flow_mse: weight {} for velocity {}", weight.shape(), velocity.shape());
  const Tensor error = velocity.detached() - target.detached();
  const Tensor weighted = weight * error;
  return {sum_of_products(weighted, error, {velocity.dim(0), 1, 1}), (2 / divisor) * weighted};
}

}  // namespace flux2
