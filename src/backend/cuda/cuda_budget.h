#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

namespace flux2 {

// What all streams of a device together have taken from the GPU, and how much they may.
class CudaBudget {
 public:
  explicit CudaBudget(size_t limit) : limit_(limit) {}  // 0: all there is

  bool allows(size_t bytes) const { return limit_ == 0 || held_ + bytes <= limit_; }
  void take(size_t bytes) {
    const size_t now = held_ += bytes;
    for (size_t peak = peak_; now > peak && !peak_.compare_exchange_weak(peak, now);) {
    }
  }
  void give_back(size_t bytes) { held_ -= bytes; }

  size_t held() const { return held_; }
  size_t peak() const { return peak_; }
  size_t limit() const { return limit_; }

 private:
  const size_t limit_;
  std::atomic<size_t> held_ = 0, peak_ = 0;
};

}  // namespace flux2
