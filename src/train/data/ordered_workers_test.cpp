#include "train/data/ordered_workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>

namespace flux2 {
namespace {

TEST(OrderedWorkers, ResultsComeInOrder) {
  for (const size_t threads : {0u, 1u, 4u}) {
    OrderedWorkers<size_t> workers(50, threads, [](size_t i) {
      std::this_thread::sleep_for(std::chrono::microseconds((i * 7919) % 300));
      return i * i;
    });
    for (size_t i = 0; i < 50; ++i) EXPECT_EQ(workers.next(), i * i);
    EXPECT_FALSE(workers.next());
  }
}

TEST(OrderedWorkers, ErrorsAreThrownAtTheirPlace) {
  OrderedWorkers<int> workers(10, 3, [](size_t i) {
    if (i == 4) throw std::runtime_error("four");
    return static_cast<int>(i);
  });
  for (int i = 0; i < 4; ++i) EXPECT_EQ(workers.next(), i);
  EXPECT_THROW(workers.next(), std::runtime_error);
  EXPECT_EQ(workers.next(), 5);
}

TEST(OrderedWorkers, DoNotRunFarAhead) {
  std::atomic<size_t> started = 0;
  OrderedWorkers<int> workers(1000, 2, [&](size_t) {
    ++started;
    return 0;
  });
  workers.next();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_LE(started.load(), 5u);
}

}  // namespace
}  // namespace flux2
