#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace flux2 {

// A fixed set of threads that help with parallel loops. The caller takes part in its own loop. When several threads call at
// once, each worker helps the loop with the fewest helpers and chooses again whenever another loop begins.
// Loops do not nest: a body that calls parallel_for on the same pool runs that inner loop alone.
class ThreadPool {
 public:
  // 0: one thread per core that the system reports. If the system refuses to create threads, the pool has fewer.
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int size() const;  // the workers and the caller

  // Calls body(i) once for every i in [0, n), in any order, on any thread; returns when all are done.
  // The first exception thrown by a body is rethrown here.
  void parallel_for(int64_t n, const std::function<void(int64_t)>& body);

  // Splits [0, n) into ranges of at least `grain` and calls body(begin, end) for each.
  void parallel_ranges(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace flux2
