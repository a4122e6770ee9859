#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <list>
#include <mutex>
#include <utility>

namespace flux2 {

// The memory that all streams of a device have allocated on the GPU, how much of it is in use, and the limit.
class CudaBudget {
 public:
  // limit 0: all there is. `allow`, if given, may refuse an allocation.
  explicit CudaBudget(size_t limit, std::function<bool(size_t)> allow = {}) : limit_(limit), allow_(std::move(allow)) {}

  bool allows(size_t bytes) const {
    if (allow_ && !allow_(bytes)) return false;
    const std::lock_guard lock(mutex_);
    return limit_ == 0 || held_ + bytes <= limit_;
  }
  void take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    held_ += bytes;
  }
  void give_back(size_t bytes) {
    const std::lock_guard lock(mutex_);
    held_ -= bytes;
  }
  void use(size_t bytes) {
    const std::lock_guard lock(mutex_);
    peak_ = std::max(peak_, used_ += bytes);
    recent_peak_ = std::max(recent_peak_, used_);
  }
  void let_go(size_t bytes) {
    const std::lock_guard lock(mutex_);
    used_ -= bytes;
  }

  // A stream that runs out of memory asks the others to release what they hold but do not use.
  using Trim = std::function<void()>;
  std::list<Trim>::iterator add(Trim trim) {
    const std::lock_guard lock(trims_mutex_);
    return trims_.insert(trims_.end(), std::move(trim));
  }
  void remove(std::list<Trim>::iterator trim) {
    const std::lock_guard lock(trims_mutex_);
    trims_.erase(trim);
  }
  void trim_others(std::list<Trim>::iterator own) {
    const std::lock_guard lock(trims_mutex_);
    for (auto trim = trims_.begin(); trim != trims_.end(); ++trim)
      if (trim != own) (*trim)();
  }

  size_t held() const { return locked(held_); }
  size_t peak() const { return locked(peak_); }  // of what was in use
  size_t restart_peak() {                        // the peak since the previous call
    const std::lock_guard lock(mutex_);
    return std::exchange(recent_peak_, used_);
  }
  size_t limit() const { return limit_; }

 private:
  size_t locked(const size_t& value) const {
    const std::lock_guard lock(mutex_);
    return value;
  }

  const size_t limit_;
  const std::function<bool(size_t)> allow_;
  mutable std::mutex mutex_;
  size_t held_ = 0, used_ = 0, peak_ = 0, recent_peak_ = 0;
  std::mutex trims_mutex_;
  std::list<Trim> trims_;
};

}  // namespace flux2
