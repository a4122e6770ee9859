#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace flux2 {
namespace {

TEST(ThreadPool, RunsEveryIndexOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (int64_t n : {0, 1, 2, 1000}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
      pool.parallel_for(n, [&](int64_t i) { ++seen[static_cast<size_t>(i)]; });
      for (auto& s : seen) EXPECT_EQ(s.load(), 1);
    }
  }
}

TEST(ThreadPool, RangesCoverWithoutOverlap) {
  ThreadPool pool(3);
  std::vector<std::atomic<int>> seen(1001);
  pool.parallel_ranges(1001, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
  });
  for (auto& s : seen) EXPECT_EQ(s.load(), 1);
}

TEST(ThreadPool, InnerLoopsRunAlone) {
  ThreadPool pool(2);
  std::atomic<int> total{0};
  pool.parallel_for(4, [&](int64_t) { pool.parallel_for(5, [&](int64_t) { ++total; }); });
  EXPECT_EQ(total.load(), 20);
}

TEST(ThreadPool, FirstExceptionReachesTheCaller) {
  ThreadPool pool(2);
  EXPECT_THROW(pool.parallel_for(100, [](int64_t i) { if (i == 7) throw std::runtime_error("seven"); }), std::runtime_error);
  std::atomic<int> after{0};
  pool.parallel_for(10, [&](int64_t) { ++after; });
  EXPECT_EQ(after.load(), 10);
}

TEST(ThreadPool, TwoCallersMayShareIt) {
  ThreadPool pool(3);
  std::atomic<int> total{0};
  auto caller = [&] {
    for (int k = 0; k < 50; ++k) pool.parallel_for(20, [&](int64_t) { ++total; });
  };
  std::thread other(caller);
  caller();
  other.join();
  EXPECT_EQ(total.load(), 2000);
}

}  // namespace
}  // namespace flux2
