#pragma once

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/start_thread.h"

namespace flux2 {

// Computes work(0), work(1), …, work(count − 1) on several threads, a little ahead of the consumer, and hands the results out in
// order. What work(i) throws is thrown by the next() that would have returned it.
template <class T>
class OrderedWorkers {
 public:
  OrderedWorkers(size_t count, size_t threads, std::function<T(size_t)> work)
      : count_(count), ahead_(2 * std::max<size_t>(1, threads)), work_(std::move(work)) {
    for (size_t i = 0; i < std::min(threads, count); ++i)
      if (std::jthread thread = start_thread_if_possible([this] { run(); }); thread.joinable())
        threads_.push_back(std::move(thread));
  }
  OrderedWorkers(const OrderedWorkers&) = delete;
  OrderedWorkers& operator=(const OrderedWorkers&) = delete;
  ~OrderedWorkers() {
    const std::lock_guard lock(mutex_);
    started_ = count_;
    changed_.notify_all();
  }

  // The next result; none behind the last.
  std::optional<T> next() {
    if (taken_ == count_) return {};
    if (threads_.empty()) return work_(taken_++);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_.contains(taken_); });
    Result result = std::move(done_.extract(taken_).mapped());
    ++taken_;
    changed_.notify_all();
    lock.unlock();
    if (result.error) std::rethrow_exception(result.error);
    return std::move(result.value);
  }

 private:
  struct Result {
    std::optional<T> value;
    std::exception_ptr error;
  };

  void run() {
    for (;;) {
      size_t mine = 0;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return started_ == count_ || started_ < taken_ + ahead_; });
        if (started_ == count_) return;
        mine = started_++;
      }
      Result result;
      try {
        result.value = work_(mine);
      } catch (...) {
        result.error = std::current_exception();
      }
      const std::lock_guard lock(mutex_);
      done_.emplace(mine, std::move(result));
      changed_.notify_all();
    }
  }

  const size_t count_, ahead_;
  std::function<T(size_t)> work_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<size_t, Result> done_;
  size_t started_ = 0, taken_ = 0;
  std::vector<std::jthread> threads_;  // last: they use the others
};

}  // namespace flux2
