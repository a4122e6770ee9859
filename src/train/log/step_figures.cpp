#include "train/log/step_figures.h"

#include <algorithm>
#include <cmath>

namespace flux2 {

void SpeedMeter::add(double seconds, int64_t tokens) {
  constexpr size_t kSteps = 20;
  if (std::exchange(first_, false) || !(seconds > 0)) return;
  steps_.push_back({seconds, tokens});
  if (steps_.size() > kSteps) steps_.pop_front();
}

std::optional<double> SpeedMeter::steps_per_s() const {
  double seconds = 0;
  for (const Timed& s : steps_) seconds += s.seconds;
  return steps_.empty() ? std::nullopt : std::optional(static_cast<double>(steps_.size()) / seconds);
}

std::optional<double> SpeedMeter::tokens_per_s() const {
  double seconds = 0;
  int64_t tokens = 0;
  for (const Timed& s : steps_) {
    seconds += s.seconds;
    tokens += s.tokens;
  }
  return tokens == 0 ? std::nullopt : std::optional(static_cast<double>(tokens) / seconds);
}

std::array<double, kTimestepBins> loss_by_timestep(const std::vector<RunStep::Sample>& samples) {
  std::array<double, kTimestepBins> sums{};
  std::array<int64_t, kTimestepBins> counts{};
  for (const RunStep::Sample& s : samples) {
    if (!(s.t >= 0 && s.t <= 1) || !std::isfinite(s.loss)) continue;
    const size_t bin = std::min(kTimestepBins - 1, static_cast<size_t>(s.t * static_cast<double>(kTimestepBins)));
    sums[bin] += s.loss;
    ++counts[bin];
  }
  for (size_t bin = 0; bin < kTimestepBins; ++bin)
    sums[bin] = counts[bin] > 0 ? sums[bin] / static_cast<double>(counts[bin]) : kUnknown;
  return sums;
}

}  // namespace flux2
