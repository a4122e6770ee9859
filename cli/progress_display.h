#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <string>

#include "cli/console.h"
#include "pipeline/progress.h"

namespace flux2 {

// Shows where a run is: a bar redrawn at most ten times a second, plain lines, or one JSON object per event.
class ProgressDisplay {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ProgressDisplay(Console& console) : console_(console), started_(Clock::now()) {}

  // For the pipeline; this object must outlive it. Stops at SIGINT, at SIGTERM, and after `deadline` seconds.
  Progress progress(std::optional<double> deadline = {});
  void at(Phase phase, int step, int steps, Clock::time_point now = Clock::now());
  void begin();   // a request: times of phases count from here
  void finish();  // takes the bar away

  double seconds_in(Phase phase) const { return spent_[static_cast<size_t>(phase)]; }
  double seconds_since_report() const { return std::chrono::duration<double>(Clock::now() - reported_).count(); }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - started_).count(); }

 private:
  void draw_bar(double elapsed);

  Console& console_;
  Clock::time_point started_, phase_started_{}, drawn_{}, reported_{};
  std::array<double, kPhases> spent_{};  // by phase
  Phase phase_ = Phase::Load;
  int step_ = 0, steps_ = 0;
};

// "denoise 2/4  ▇▇▁▁ 0.12 s/step  ETA 0.3 s"; `elapsed` since the phase began.
std::string progress_line(Phase phase, int step, int steps, double elapsed);

}  // namespace flux2
