#pragma once

#include <memory>
#include <vector>

#include "model/flux2_transformer.h"
#include "pipeline/denoise.h"
#include "pipeline/image_prompts.h"
#include "pipeline/regions.h"

namespace flux2 {

struct ReferenceMemory;
struct Session;

// The inputs of the transformer that are the same in every step of a run. R is the number of images, or twice that if both passes
// of true guidance run together.
struct StepConditions {
  Tensor text;                                             // [R, T, H] after the text projection
  Tensor guidance;                                         // sinusoid [R, 256]; undefined for models that take none
  Tensor references;                                       // [R, Nr, 128], behind the latents; undefined without
  Tensor reference_time;                                   // their sinusoid [R, 256]; undefined: that of the latents
  std::shared_ptr<const ReferenceMemory> memory;           // of references that are not in the sequence
  std::vector<TokenPosition> positions;                    // of text, image and references
  Rope rope;                                               // over these, and over tokens of image prompts
  std::shared_ptr<const ImagePromptInputs> image_prompts;  // those that count in this step; null: none
  std::shared_ptr<const TokenGroups> groups;               // which tokens see which; null: all see all
};

// The velocity [R, I, 128] in F32 of latents x [R, I, 128] at the time whose sinusoid is `time` [R, 256]; captured where that is
// faster, so the next step with these shapes may overwrite it.
Tensor step_velocity(const std::shared_ptr<const Flux2Transformer>& transformer, Session& session,
                     const StepConditions& conditions, const Tensor& x, const Tensor& time, const BeforeBlock& before_block = {});

// The transformer with a request's conditions: computes the velocity of latents, with guidance if requested. The two passes of
// true guidance, v = v⁻ + cfg · (v⁺ − v⁻), run as one batch if the session's token limit allows it, both see the same references
// and the image has no regions and no image prompts; otherwise they run one after the other.
class GuidedStep {
 public:
  // `before_block` may stop a pass by throwing.
  GuidedStep(Session& session, const Request& request, const Conditions& conditions, int64_t pictures, BeforeBlock before_block);

  // x [N, I, 128] in F32 → [N, I, 128] in F32, in a step that is counted from 0. The next call may overwrite the result.
  Tensor velocity(const Tensor& x, float sigma, size_t step);

  // Whether a step sees other image prompts than the one before, so that the velocity jumps.
  bool jumps_at(size_t step) const { return image_prompts_.change_at(step); }

 private:
  StepConditions pass(const std::vector<Tensor>& texts, const ReferenceTokens& references, int64_t pictures,
                      RegionPass which = RegionPass::Positive) const;
  void choose_image_prompts(size_t step);
  Tensor run(const StepConditions& conditions, const Tensor& input, float sigma) const;

  std::shared_ptr<const Flux2Transformer> transformer_;
  Session& session_;
  const Request& request_;
  ImagePrompts image_prompts_;
  std::vector<StepConditions> passes_;  // one; or the negative one and the positive one
  bool halves_together_ = false;
  BeforeBlock before_block_;
};

}  // namespace flux2
