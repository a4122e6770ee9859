#pragma once

#include "tensor/tensor.h"

namespace flux2 {

// Means over all elements, shape [].
Tensor mse_loss(const Tensor& prediction, const Tensor& target);
Tensor l1_loss(const Tensor& prediction, const Tensor& target);

// Divergence of N(mean, exp(log_variance)) from N(0, 1), averaged over elements: ½ (m² + e^l − l − 1).
Tensor kl_loss(const Tensor& mean_values, const Tensor& log_variance);

}  // namespace flux2
