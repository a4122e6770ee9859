#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
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
  EXPECT_THROW(pool.parallel_for(100,
                                 [](int64_t i) {
                                   if (i == 7) throw std::runtime_error("seven");
                                 }),
               std::runtime_error);
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

// A loop whose bodies take a while, and the threads that ran them.
struct WatchedLoop {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::atomic<int> ran{0};

  size_t thread_count() {
    std::lock_guard lock(mutex);
    return threads.size();
  }
  void body() {
    {
      std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
    }
    ++ran;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

TEST(ThreadPool, ASecondCallerTakesHelpersFromTheFirst) {
  ThreadPool pool(5);  // four workers
  WatchedLoop first, second;
  std::atomic<bool> finish{false};
  std::thread other([&] {
    pool.parallel_for(1 << 20, [&](int64_t) {
      if (!finish) first.body();
    });
  });
  while (first.thread_count() < 5) std::this_thread::yield();
  pool.parallel_for(400, [&](int64_t) { second.body(); });
  finish = true;
  other.join();
  EXPECT_EQ(second.ran, 400);
  EXPECT_EQ(second.threads.count(std::this_thread::get_id()), 1u);
  // Two of the four workers moved over; a pause at a bad moment may let a third one choose differently.
  EXPECT_GE(second.threads.size(), 3u);
}

TEST(ThreadPool, OneWorkerServesTwoCallersInTurn) {
  ThreadPool pool(2);
  std::atomic<bool> finish{false}, begun{false};
  std::thread other([&] {
    pool.parallel_for(1 << 20, [&](int64_t) {
      begun = true;
      if (!finish) std::this_thread::sleep_for(std::chrono::microseconds(200));
    });
  });
  while (!begun) std::this_thread::yield();
  int helped = 0;
  for (int k = 0; k < 40; ++k) {
    WatchedLoop loop;
    pool.parallel_for(10, [&](int64_t) { loop.body(); });
    helped += loop.threads.size() == 2;
  }
  finish = true;
  other.join();
  EXPECT_GT(helped, 5);
  EXPECT_LT(helped, 40);
}

TEST(ThreadPool, AnExceptionReachesOnlyItsOwnCaller) {
  ThreadPool pool(4);
  std::atomic<int> wrong{0};
  auto caller = [&](const std::string& name) {
    for (int k = 0; k < 100; ++k) {
      try {
        pool.parallel_for(30, [&](int64_t i) {
          if (i == 11) throw std::runtime_error(name);
        });
        ++wrong;
      } catch (const std::runtime_error& e) {
        if (e.what() != name) ++wrong;
      }
    }
  };
  std::atomic<int> total{0};
  std::thread a([&] { caller("a"); }), b([&] { caller("b"); });
  for (int k = 0; k < 100; ++k) pool.parallel_for(30, [&](int64_t) { ++total; });
  a.join();
  b.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(total.load(), 3000);
}

TEST(ThreadPool, ManyCallersWithInnerLoopsAllFinish) {
  ThreadPool pool(3);
  ThreadPool second_pool(2);
  std::atomic<int> total{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&] {
      for (int k = 0; k < 200; ++k) {
        std::vector<int> each(7);
        pool.parallel_for(7, [&](int64_t i) {
          std::atomic<int> inner{0};
          pool.parallel_for(3, [&](int64_t) { ++inner; });
          second_pool.parallel_for(3, [&](int64_t) { pool.parallel_for(2, [&](int64_t) { ++inner; }); });
          each[static_cast<size_t>(i)] = inner;
        });
        for (int n : each) total += n;
      }
    });
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(total.load(), 4 * 200 * 7 * 9);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // both reserve address space for themselves
TEST(ThreadPool, WorksWithFewerThreadsIfTheSystemRefusesMore) {
  const auto in_little_memory = [] {
    long pages = 0;
    std::FILE* f = std::fopen("/proc/self/statm", "r");
    if (!f || std::fscanf(f, "%ld", &pages) != 1) std::exit(2);
    std::fclose(f);
    const rlim_t limit = static_cast<rlim_t>(pages) * 4096 + (64u << 20);
    const rlimit stack{8u << 20, RLIM_INFINITY}, space{limit, limit};
    if (setrlimit(RLIMIT_STACK, &stack) != 0 || setrlimit(RLIMIT_AS, &space) != 0) std::exit(3);
    ThreadPool pool(100);  // their stacks alone would need 800 MiB
    std::atomic<int> total{0};
    pool.parallel_for(1000, [&](int64_t) { ++total; });
    std::exit(total == 1000 && pool.size() < 100 ? 0 : 4);
  };
  EXPECT_EXIT(in_little_memory(), testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace flux2
