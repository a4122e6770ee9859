#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "base/error.h"

namespace flux2 {

enum class Phase { Load, Text, EncodeReferences, Denoise, Decode, Save };

inline const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::Load: return "load";
    case Phase::Text: return "text";
    case Phase::EncodeReferences: return "encode refs";
    case Phase::Denoise: return "denoise";
    case Phase::Decode: return "decode";
    case Phase::Save: return "save";
  }
  return "";
}

class Tensor;

// A step of denoising is done: latents x [N, I, 128] in F32 lie at noise level `sigma`, the last velocity v of the same shape
// led there. x − sigma · v is the picture as it is foreseen.
struct StepDone {
  int step, steps;
  float sigma;
  int64_t rows, columns;  // I = rows · columns positions
  const Tensor& x;
  const Tensor& v;
};

// How a run tells where it is and hears that it should stop. Default-constructed it does neither.
struct Progress {
  // step of steps are done; 0 of n starts a phase, n of n ends it.
  std::function<void(Phase phase, int step, int steps)> report;
  std::function<bool()> cancelled;
  std::function<void(const StepDone& step)> step_done;
  std::optional<std::chrono::steady_clock::time_point> deadline;  // past it the run is cancelled

  void at(Phase phase, int step, int steps) const {
    if (report) report(phase, step, steps);
    if (cancelled && cancelled()) throw Error(ErrorCode::Cancelled, "stopped");
  }
};

}  // namespace flux2
