#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "base/error.h"
#include "base/mapped_file.h"

namespace flux2 {

enum class Phase { Load, Text, EncodeReferences, Denoise, Decode, Save, EncodeImages };  // the last: for the caches of training
constexpr size_t kPhases = 7;

inline const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::Load: return "load";
    case Phase::Text: return "text";
    case Phase::EncodeReferences: return "encode refs";
    case Phase::Denoise: return "denoise";
    case Phase::Decode: return "decode";
    case Phase::Save: return "save";
    case Phase::EncodeImages: return "encode images";
  }
  return "";
}

class Tensor;

// A step of denoising is done: latents x [N, I, 128] in F32 lie at noise level `sigma`, the last velocity v of the same shape led
// there. x − sigma · v is the current prediction of the final image.
struct StepDone {
  int step, steps;
  float sigma;
  int64_t rows, columns;  // I = rows · columns positions
  const Tensor& x;
  const Tensor& v;
};

// How a run reports its progress and learns that it should stop. A default-constructed Progress does neither.
struct Progress {
  // `step` of `steps` are done; 0 of n starts a phase, n of n ends it.
  std::function<void(Phase phase, int step, int steps)> report;
  std::function<bool()> cancelled;
  std::function<void(const StepDone& step)> step_done = {};

  // When the run must have ended. It stops at the next block after this time.
  std::optional<std::chrono::steady_clock::time_point> deadline = {};

  void at(Phase phase, int step, int steps) const {
    if (report) report(phase, step, steps);
    check();
    check_mapped_files();  // a step that read weights from a truncated file is worth nothing
  }
  // Throws Cancelled if the run should stop.
  void check() const {
    if (cancelled && cancelled()) throw Error(ErrorCode::Cancelled, "stopped");
    if (deadline && std::chrono::steady_clock::now() >= *deadline)
      throw Error(ErrorCode::Cancelled, "stopped: the deadline passed before the run was finished",
                  Hint("allow more time with {0}, or use fewer steps or a smaller size", {set_option("deadline")}));
  }
  // check() as a function that networks call before every block; empty when nothing could stop the run. It keeps copies.
  std::function<void()> before_block() const {
    if (!cancelled && !deadline) return {};
    return [stop = Progress{.report = {}, .cancelled = cancelled, .step_done = {}, .deadline = deadline}] { stop.check(); };
  }
};

}  // namespace flux2
