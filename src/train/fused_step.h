#pragma once

#include <string>
#include <unordered_map>

#include "autograd/grad.h"
#include "train/optimiser/optimiser.h"
#include "train/trained_model.h"

namespace flux2 {

// Changes each parameter as soon as backward() has completed its gradient, and frees the gradient, so that the gradients of a
// whole model never exist together. The norm of all gradients is known only when the weights have changed, so each gradient is
// clipped by itself.
class FusedStep {
 public:
  // `parameters` are those of the optimiser, in its order. `factor` multiplies the learning rates. `max_norm` 0: no clipping.
  // Throws InvalidArgument for an optimiser that looks at all gradients first.
  FusedStep(Optimiser& optimiser, const std::vector<TrainedParameter>& parameters, double factor, double max_norm);
  FusedStep(const FusedStep&) = delete;
  FusedStep& operator=(const FusedStep&) = delete;

  TakeGradient take();  // for backward(); valid as long as this object

  bool began() const { return began_; }  // whether any gradient arrived
  double norm() const;                   // of all gradients before clipping; not a number if none arrived
  // A parameter whose gradient was not finite and which was therefore not changed; empty if there is none.
  const std::string& skipped() const { return skipped_; }

 private:
  struct Place {
    size_t index = 0;
    const std::string* name = nullptr;
  };

  Optimiser& optimiser_;
  std::unordered_map<const GradNode*, Place> places_;
  double factor_, max_norm_;
  double squares_ = 0;
  bool began_ = false;
  std::string skipped_;
};

}  // namespace flux2
