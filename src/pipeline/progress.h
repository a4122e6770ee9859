#pragma once

#include <functional>

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

// How a run tells where it is and hears that it should stop. Default-constructed it does neither.
struct Progress {
  // step of steps are done; 0 of n starts a phase, n of n ends it.
  std::function<void(Phase phase, int step, int steps)> report;
  std::function<bool()> cancelled;

  void at(Phase phase, int step, int steps) const {
    if (report) report(phase, step, steps);
    if (cancelled && cancelled()) throw Error(ErrorCode::Cancelled, "stopped");
  }
};

}  // namespace flux2
