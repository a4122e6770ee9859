#include "train/data/batch_reader.h"

#include <utility>

#include "base/start_thread.h"

namespace flux2 {

BatchReader::BatchReader(const TrainingSet& set, std::vector<BatchPlan> plans) : set_(set), plans_(std::move(plans)) {
  // Without a thread, next() reads by itself.
  if (!plans_.empty()) thread_ = start_thread_if_possible([this] { read_all(); });
}

BatchReader::~BatchReader() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

void BatchReader::read_all() {
  for (const BatchPlan& plan : plans_) {
    std::optional<LoadedBatch> batch;
    std::exception_ptr error;
    try {
      batch = set_.load(plan);
    } catch (...) {
      error = std::current_exception();
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopping_ || (!ready_ && !error_); });
    if (stopping_) return;
    ready_ = std::move(batch);
    error_ = error;
    changed_.notify_all();
    if (error) return;
  }
}

std::optional<LoadedBatch> BatchReader::next() {
  if (taken_ == plans_.size()) return {};
  if (!thread_.joinable()) return set_.load(plans_[taken_++]);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ready_ || error_; });
  if (error_) std::rethrow_exception(error_);
  ++taken_;
  std::optional<LoadedBatch> batch = std::exchange(ready_, std::nullopt);
  changed_.notify_all();
  return batch;
}

}  // namespace flux2
