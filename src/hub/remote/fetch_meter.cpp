#include "hub/remote/fetch_meter.h"

#include <algorithm>

namespace flux2 {

namespace {

constexpr auto kBetween = std::chrono::milliseconds(250);
constexpr auto kWindow = std::chrono::seconds(5);  // the rate is that of the last seconds

}  // namespace

FetchMeter::FetchMeter(const FetchPlan& plan, FetchProgress progress) : progress_(std::move(progress)), next_(Clock::now()) {
  for (const PlannedFile& f : plan.files) entries_.push_back({.path = f.path, .total = f.size});
  samples_.push_back({Clock::now(), 0});
}

void FetchMeter::found(size_t file, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  entries_[file].bytes += bytes;
}

void FetchMeter::received(size_t file, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  entries_[file].bytes += static_cast<uint64_t>(bytes);
  entries_[file].verifying = false;  // what was there was something else
  if (bytes > 0) transferred_ += static_cast<uint64_t>(bytes);
  tell(file, false);
}

void FetchMeter::verifying(size_t file) {
  const std::lock_guard lock(mutex_);
  entries_[file].verifying = true;
  tell(file, false);
}

void FetchMeter::done(size_t file, uint64_t size) {
  const std::lock_guard lock(mutex_);
  entries_[file].bytes = entries_[file].total = size;
  entries_[file].verifying = false;
  ++done_;
  tell(file, false);
}

void FetchMeter::end() {
  const std::lock_guard lock(mutex_);
  if (!entries_.empty()) tell(last_file_, true);
}

double FetchMeter::rate(Clock::time_point now) {
  samples_.push_back({now, transferred_});
  while (samples_.size() > 2 && now - samples_.front().at > kWindow) samples_.pop_front();
  const double seconds = std::chrono::duration<double>(now - samples_.front().at).count();
  return seconds > 0 ? static_cast<double>(transferred_ - samples_.front().transferred) / seconds : 0;
}

void FetchMeter::tell(size_t file, bool always) {
  last_file_ = file;
  const auto now = Clock::now();
  if (!progress_ || (!always && now < next_)) return;
  next_ = now + kBetween;
  const Entry& e = entries_[file];
  FetchStatus status{.file = e.path,
                     .file_bytes = e.bytes,
                     .file_total = e.total,
                     .files_done = done_,
                     .files = static_cast<int>(entries_.size()),
                     .verifying = e.verifying};
  for (const Entry& entry : entries_) {
    status.bytes += entry.bytes;
    status.total += std::max(entry.total, entry.bytes);
  }
  status.bytes_per_s = rate(now);
  if (status.bytes_per_s > 0) status.eta_s = static_cast<double>(status.total - status.bytes) / status.bytes_per_s;
  progress_(status);
}

}  // namespace flux2
