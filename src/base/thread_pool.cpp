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
namespace {

// The pool whose loop this thread is running a body of. An inner loop on the same pool runs alone.
thread_local const void* current_pool = nullptr;

// One call of parallel_for. It lives on the caller's stack: the caller takes it off the pool's list and waits until
// `helpers` is 0 before it returns. All but `next` is guarded by the pool's mutex.
struct Loop {
  const std::function<void(int64_t)>& body;
  const int64_t count;
  std::atomic<int64_t> next{0};
  int helpers = 0;  // workers inside this loop
  std::exception_ptr failure = {};
  std::condition_variable done = {};

  bool has_work() const { return next.load(std::memory_order_relaxed) < count; }
};

}  // namespace

struct ThreadPool::State {
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<Loop*> loops;              // in progress, one for each caller
  std::atomic<uint64_t> loops_begun{0};  // when this changes, every worker chooses its loop again
  size_t turn = 0;                       // decides between loops that have equally many helpers
  int idle = 0;                          // workers that wait for `wake`
  bool stopping = false;

  // The loop with the fewest helpers among those that have work left. Call it with the mutex held.
  Loop* choose() {
    Loop* best = nullptr;
    bool tie = false;
    for (size_t i = 0; i < loops.size(); ++i) {
      Loop* loop = loops[(turn + i) % loops.size()];
      if (!loop->has_work()) continue;
      tie = tie || (best && loop->helpers == best->helpers);
      if (!best || loop->helpers < best->helpers) best = loop;
    }
    if (tie) ++turn;
    return best;
  }

  // Runs pieces of the loop until none is left or `stay()` is false.
  template <class Stay>
  void work(Loop& loop, Stay stay) {
    const void* outer = std::exchange(current_pool, this);
    for (int64_t i; stay() && (i = loop.next.fetch_add(1, std::memory_order_relaxed)) < loop.count;) {
      try {
        loop.body(i);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!loop.failure) loop.failure = std::current_exception();
        loop.next.store(loop.count, std::memory_order_relaxed);
      }
    }
    current_pool = outer;
  }

  void run_worker() {
    std::unique_lock lock(mutex);
    for (;;) {
      Loop* loop = choose();
      if (!loop) {
        if (stopping) return;
        ++idle;
        wake.wait(lock);
        --idle;
        continue;
      }
      ++loop->helpers;
      const uint64_t seen = loops_begun.load(std::memory_order_relaxed);
      lock.unlock();
      work(*loop, [&] { return loops_begun.load(std::memory_order_relaxed) == seen; });
      lock.lock();
      if (--loop->helpers == 0) loop->done.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  if (threads <= 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  state_->workers.reserve(static_cast<size_t>(threads - 1));
  try {
    for (int i = 1; i < threads; ++i) state_->workers.emplace_back([s = state_.get()] { s->run_worker(); });
  } catch (const std::exception&) {
    // The system allows no more threads. The pool works with those it has; see size().
  }
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
  if (n <= 1 || s.workers.empty() || current_pool == &s) {
    for (int64_t i = 0; i < n; ++i) body(i);
    return;
  }
  Loop loop{.body = body, .count = n};
  bool wake;
  {
    std::lock_guard lock(s.mutex);
    s.loops.push_back(&loop);
    s.loops_begun.fetch_add(1, std::memory_order_relaxed);
    wake = s.idle > 0;
  }
  if (wake) s.wake.notify_all();
  s.work(loop, [] { return true; });
  {
    std::unique_lock lock(s.mutex);
    std::erase(s.loops, &loop);
    loop.done.wait(lock, [&] { return loop.helpers == 0; });
  }
  if (loop.failure) std::rethrow_exception(loop.failure);
}

void ThreadPool::parallel_ranges(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (n <= 0) return;
  // Four pieces per thread balance cores of unequal speed without creating many small pieces.
  const int64_t pieces = std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, 4 * size());
  parallel_for(pieces, [&](int64_t i) { body(n * i / pieces, n * (i + 1) / pieces); });
}

}  // namespace flux2
