#pragma once

#include <vector>

#include "pipeline/denoise.h"
#include "pipeline/step.h"

namespace flux2 {

// The transformer under a request's conditions: the velocity of latents, guided when the request asks for it.
// The two halves of true guidance, v = v⁻ + cfg · (v⁺ − v⁻), run as one batch where the session's limit on tokens allows and
// both see the same references; one after the other otherwise.
class GuidedStep {
 public:
  // `before_block` may stop a pass by throwing.
  GuidedStep(Session& session, const Request& request, const Conditions& conditions, int64_t pictures, BeforeBlock before_block);

  // x [N, I, 128] in F32 → [N, I, 128] in F32. The next call may overwrite the result.
  Tensor velocity(const Tensor& x, float sigma);

 private:
  StepConditions pass(const std::vector<Tensor>& texts, const ReferenceTokens& references, int64_t pictures) const;
  Tensor run(const StepConditions& conditions, const Tensor& input, float sigma) const;

  std::shared_ptr<const Flux2Transformer> transformer_;
  Session& session_;
  const Request& request_;
  std::vector<StepConditions> passes_;  // one; or the negative one and the positive one
  bool halves_together_ = false;
  BeforeBlock before_block_;
};

}  // namespace flux2
