#include "train/fused_step.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace flux2 {

FusedStep::FusedStep(Optimiser& optimiser, const std::vector<TrainedParameter>& parameters, double factor, double max_norm)
    : optimiser_(optimiser), factor_(factor), max_norm_(max_norm) {
  check(optimiser.steps_one_by_one(), "this optimiser needs all gradients at once, so it does not work with fused_backward_pass");
  for (size_t i = 0; i < parameters.size(); ++i) places_[parameters[i].leaf.grad().node.get()] = {i, &parameters[i].name};
}

TakeGradient FusedStep::take() {
  return [this](const GradNode& leaf, const Tensor& gradient) {
    const auto found = places_.find(&leaf);
    if (found == places_.end()) return false;
    if (!began_) optimiser_.begin_step(factor_);
    began_ = true;
    const double norm = gradient_norm({&gradient, 1});
    squares_ += norm * norm;
    if (std::isfinite(norm))
      optimiser_.step_one(found->second.index, gradient, max_norm_ > 0 ? std::min(1.0, max_norm_ / (norm + 1e-6)) : 1.0);
    else skipped_ = *found->second.name;
    return true;
  };
}

double FusedStep::norm() const { return began_ ? std::sqrt(squares_) : std::numeric_limits<double>::quiet_NaN(); }

}  // namespace flux2
