#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "train/log/run_log.h"

namespace flux2 {

// How fast a run is, over its last steps. The first step is left out: it loads, compiles and measures.
class SpeedMeter {
 public:
  void add(double seconds, int64_t tokens);
  std::optional<double> steps_per_s() const;
  std::optional<double> tokens_per_s() const;

 private:
  struct Timed {
    double seconds = 0;
    int64_t tokens = 0;
  };
  std::deque<Timed> steps_;
  bool first_ = true;
};

// Mean loss of the samples whose t falls into [k/10, (k+1)/10); NaN if there are none. t = 1 belongs to the last bin.
std::array<double, kTimestepBins> loss_by_timestep(const std::vector<RunStep::Sample>& samples);

}  // namespace flux2
