#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "tensor/tensor.h"

namespace flux2 {

// The largest relative error of a step that may be left out: "auto" (0.1), "off" (0) or a number up to 1.
double cache_tolerance(std::string_view text);

// What a run left out.
struct StepCacheUse {
  int steps = 0, computed = 0;
  double error = 0;  // estimated, of the latents, as a share of their change: the mean of the errors of all steps
};

// Leaves out steps of a many-step model. Along a run, the velocity is a smooth function of σ, so between two passes of the
// transformer it nearly follows the line through the last two computed velocities. Every computed pass shows how far that line
// was off. The error of a line grows as (σ − σa)·(σ − σb), where a and b are its two points, so the error of the next steps is
// known in advance: a step is left out while it stays within the tolerance. A skipped step costs nothing, not even a first block.
class StepCache {
 public:
  // `tolerance`: the largest relative error of a velocity that is not computed; 0: every step is computed. `sigmas` are those of
  // the run, the last one being its end.
  StepCache(double tolerance, std::vector<float> sigmas);

  // The velocity of a step [1, I, 128] in F32: computed, or predicted. Steps come in order.
  Tensor velocity(size_t step, const std::function<Tensor()>& compute);

  // The velocity jumps: what is known of it does not foretell the steps that follow.
  void start_over();

  const StepCacheUse& use() const { return use_; }

 private:
  struct Computed {
    double sigma;
    Tensor velocity;
  };

  double distance(double sigma) const;  // (σ − σa)·(σ − σb)
  Tensor line(double sigma) const;
  std::optional<double> foreseen_error(size_t step) const;  // empty: the step must be computed
  void learn(double sigma, const Tensor& velocity);

  double tolerance_;
  std::vector<float> sigmas_;
  std::optional<Computed> before_, last_;
  std::optional<double> curvature_;  // relative error of the line / distance(), as seen at the last computed step
  int left_out_ = 0;                 // since the last computed step
  StepCacheUse use_;
};

}  // namespace flux2
