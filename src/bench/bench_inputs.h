#pragma once

#include <string>

#include "engine/engine.h"
#include "hub/synth_values.h"
#include "pipeline/step.h"

namespace flux2 {

// Random inputs of one step of the transformer.
struct StepInputs {
  StepConditions conditions;
  Tensor x;     // latents [B, I, 128]
  Tensor time;  // sinusoid [B, 256]

  Tensor with_references() const;  // x with the latents of references behind it, as the transformer takes them
};

struct StepShape {
  int width = 1024, height = 1024;
  int batch = 1;
  int references = 0;  // of the same size

  int64_t picture_tokens() const { return int64_t{width} / 16 * (height / 16); }
  int64_t tokens() const { return picture_tokens() * (1 + references); }
};

StepInputs random_step(const Session& session, const StepShape& shape);

}  // namespace flux2
