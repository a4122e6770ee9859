#pragma once

#include <memory>

#include "model/flux2_transformer.h"

namespace flux2 {

struct ReferenceMemory;
struct Session;

// What the transformer is given at every step of a run beside latents and time. R rows: pictures, twice as many when the
// halves of true guidance run together.
struct StepConditions {
  Tensor text;                                    // [R, T, H] after the text projection
  Tensor guidance;                                // sinusoid [R, 256]; undefined for models that take none
  Tensor references;                              // [R, Nr, 128], behind the latents; undefined without
  std::shared_ptr<const ReferenceMemory> memory;  // of references that are not in the sequence
  Rope rope;                                      // over text, image and reference positions
};

// The velocity [R, I, 128] in F32 of latents x [R, I, 128] at the time whose sinusoid is `time` [R, 256]; captured where
// that pays, so the next step of these shapes may overwrite it.
Tensor step_velocity(const std::shared_ptr<const Flux2Transformer>& transformer, Session& session,
                     const StepConditions& conditions, const Tensor& x, const Tensor& time,
                     const BeforeBlock& before_block = {});

}  // namespace flux2
