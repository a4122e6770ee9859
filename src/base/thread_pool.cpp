#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace flux2 {

struct ThreadPool::State {
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable wake, done;
  uint64_t generation = 0;  // counts loops; a worker sleeps until it changes
  bool stopping = false;

  // The loop in progress. Written under the mutex before `generation` moves on.
  const std::function<void(int64_t)>* body = nullptr;
  int64_t count = 0;
  std::atomic<int64_t> next{0};
  int active = 0;  // workers still inside this loop
  std::exception_ptr failure;
  std::atomic<bool> busy{false};  // a loop is running: an inner or second one runs alone

  void work(const std::function<void(int64_t)>& f, int64_t n) {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) {
      try {
        f(i);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next.store(n, std::memory_order_relaxed);
      }
    }
  }

  void run_worker() {
    uint64_t seen = 0;
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [&] { return stopping || generation != seen; });
      if (stopping) return;
      seen = generation;
      const auto* f = body;
      const int64_t n = count;
      lock.unlock();
      work(*f, n);
      lock.lock();
      if (--active == 0) done.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  if (threads <= 0) threads = std::max(1u, std::thread::hardware_concurrency());
  for (int i = 1; i < threads; ++i) state_->workers.emplace_back([s = state_.get()] { s->run_worker(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->wake.notify_all();
  for (auto& worker : state_->workers) worker.join();
}

int ThreadPool::size() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::parallel_for(int64_t n, const std::function<void(int64_t)>& body) {
  State& s = *state_;
  if (n <= 1 || s.workers.empty() || s.busy.exchange(true)) {
    for (int64_t i = 0; i < n; ++i) body(i);
    return;
  }
  {
    std::lock_guard lock(s.mutex);
    s.body = &body;
    s.count = n;
    s.next.store(0, std::memory_order_relaxed);
    s.failure = nullptr;
    s.active = static_cast<int>(s.workers.size());
    ++s.generation;
  }
  s.wake.notify_all();
  s.work(body, n);
  std::unique_lock lock(s.mutex);
  s.done.wait(lock, [&] { return s.active == 0; });
  const std::exception_ptr failure = std::exchange(s.failure, nullptr);
  s.busy.store(false);
  lock.unlock();
  if (failure) std::rethrow_exception(failure);
}

void ThreadPool::parallel_ranges(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (n <= 0) return;
  // Four pieces a thread even out cores of unequal speed without many small pieces.
  const int64_t pieces = std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, 4 * size());
  parallel_for(pieces, [&](int64_t i) { body(n * i / pieces, n * (i + 1) / pieces); });
}

}  // namespace flux2
