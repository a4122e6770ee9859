#include "pipeline/progress.h"

#include <gtest/gtest.h>

namespace flux2 {
namespace {

TEST(Progress, DefaultProgressNeverStopsARun) {
  EXPECT_FALSE(Progress{}.before_block());
  EXPECT_NO_THROW(Progress{}.check());
}

TEST(Progress, PassedDeadlineStopsTheRun) {
  Progress progress;
  progress.deadline = std::chrono::steady_clock::now() + std::chrono::hours(1);
  EXPECT_NO_THROW(progress.before_block()());
  progress.deadline = std::chrono::steady_clock::now();
  try {
    progress.before_block()();
    FAIL() << "it went on";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::Cancelled);
    EXPECT_NE(std::string(e.what()).find("deadline"), std::string::npos) << e.what();
  }
}

// The network keeps the function; the Progress it came from may be gone by then.
TEST(Progress, TheCheckOutlivesTheProgress) {
  int asked = 0;
  std::function<void()> check;
  {
    Progress progress;
    progress.cancelled = [&] { return ++asked == 2; };
    check = progress.before_block();
  }
  EXPECT_NO_THROW(check());
  EXPECT_THROW(check(), Error);
}

}  // namespace
}  // namespace flux2
