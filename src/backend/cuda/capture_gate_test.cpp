#include "backend/cuda/capture_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace flux2 {
namespace {

TEST(CaptureGate, CaptureRunsAloneUnderContention) {
  std::atomic<int> inside = 0, overlaps = 0;
  std::atomic<bool> done = false;
  std::vector<std::jthread> callers;
  for (int i = 0; i < 3; ++i)
    callers.emplace_back([&] {
      while (!done) {
        const OutsideCaptures outer;
        const OutsideCaptures nested;
        ++inside;
        std::this_thread::yield();
        --inside;
      }
    });
  std::vector<std::jthread> capturers;
  std::atomic<int> capturing = 0, captures = 0;
  for (int i = 0; i < 2; ++i)
    capturers.emplace_back([&] {
      for (int k = 0; k < 200; ++k) {
        const CaptureAlone alone;
        const OutsideCaptures nested;  // what the captured work calls
        if (++capturing != 1 || inside != 0) ++overlaps;
        std::this_thread::yield();
        if (inside != 0) ++overlaps;
        --capturing;
        ++captures;
      }
    });
  capturers.clear();  // joins: the capturers come to their end while the callers never pause
  done = true;
  callers.clear();
  EXPECT_EQ(captures, 400);
  EXPECT_EQ(overlaps, 0);
}

}  // namespace
}  // namespace flux2
