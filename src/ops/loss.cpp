#include "ops/loss.h"

#include "ops/activation.h"
#include "ops/arithmetic.h"

namespace flux2 {

Tensor mse_loss(const Tensor& prediction, const Tensor& target) { return mean(square(prediction - target)); }

Tensor l1_loss(const Tensor& prediction, const Tensor& target) { return mean(abs(prediction - target)); }

Tensor kl_loss(const Tensor& mean_values, const Tensor& log_variance) {
  return 0.5 * mean(-1.0 + (square(mean_values) + (exp(log_variance) - log_variance)));
}

}  // namespace flux2
