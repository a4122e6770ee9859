#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace flux2 {

// The average loss that training shows: the mean of the newest loss of every micro-step of an epoch. In the first epoch it covers
// what was seen so far; later each new loss replaces the one of the same place in the epoch before.
class LossWindow {
 public:
  LossWindow() = default;
  explicit LossWindow(std::vector<double> values) : values_(std::move(values)) {}  // from a state

  void record(int64_t micro_in_epoch,
              double loss);  // micro-steps count from 0 in each epoch; losses that are not finite are left out
  double average() const;    // 0 before the first loss. Summed afresh, so that a resumed run shows the same
  const std::vector<double>& values() const { return values_; }  // for a state; a place without a loss is NaN

 private:
  std::vector<double> values_;
};

}  // namespace flux2
