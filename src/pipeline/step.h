#pragma once

#include <memory>

#include "model/flux2_transformer.h"

namespace flux2 {

struct Session;

// What the transformer is given at every step of a run beside latents and time. R rows: pictures, twice as many with
// true guidance.
struct StepConditions {
  Tensor text;      // [R, T, H] after the text projection
  Tensor guidance;  // sinusoid [R, 256]; undefined for models that take none
  Rope rope;        // over text, then image positions
};

// A step recorded for one transformer and one set of shapes, with the tensors it reads and writes.
struct StepGraph {
  std::shared_ptr<const Flux2Transformer> transformer;
  StepConditions conditions;
  Tensor x, time, velocity;
  std::unique_ptr<Graph> graph;
};

// The velocity [R, I, 128] in F32 of latents x [R, I, 128] at the time whose sinusoid is `time` [R, 256]. On
// devices that prefer graphs the step is captured at its first use and replayed later; the session keeps it, and the
// result is overwritten by the next step of these shapes.
Tensor step_velocity(const std::shared_ptr<const Flux2Transformer>& transformer, Session& session, const StepConditions& conditions,
                     const Tensor& x, const Tensor& time);

}  // namespace flux2
