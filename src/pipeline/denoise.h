#pragma once

#include <span>
#include <vector>

#include "pipeline/progress.h"
#include "pipeline/references.h"
#include "pipeline/request.h"
#include "pipeline/session.h"
#include "pipeline/step_cache.h"

namespace flux2 {

// Text for the transformer: states of the prompt and, with true guidance, of the negative prompt; [1, T, Cctx].
struct TextConditions {
  Tensor positive, negative;
};

// The inputs of an image besides its noise.
struct Conditions {
  TextConditions text;
  ReferenceTokens references;
  int64_t image_prompt_tokens = 0;  // that all image prompts of the request add to a pass
  Tensor canvas;                    // latents [1, I, 128] of the request's canvas; undefined without
};

// Tokens of one pass for one image.
int64_t tokens_of_pass(const Request& request, const Conditions& conditions);

// Runs the schedule from noise [128, rows, columns] per image to latents: tokens [N, I, 128] in F32. The request's sampler
// follows the transformer's velocity, with guidance if requested. If parts of a canvas are kept, they are restored after every
// step, at the same noise level as the rest. With a cache there is one image, so that the others of a batch do not decide which
// of its steps are left out.
struct Denoised {
  Tensor latents;
  StepCacheUse cache;
};
Denoised denoise(Session& session, const Request& request, const Conditions& conditions,
                 std::span<const std::vector<float>> noise, const Progress& progress);

}  // namespace flux2
