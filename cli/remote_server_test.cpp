#include "cli/remote_server.h"

#include <gtest/gtest.h>

#include <thread>

namespace flux2 {
namespace {

using std::chrono::milliseconds;

// Events may be followed for hours before a server restarts.
TEST(ServerPatience, CountsFromTheFirstFailure) {
  const Error away(ErrorCode::Network, "no answer"), unknown(ErrorCode::InvalidArgument, "not found");
  ServerPatience patience(milliseconds(20));
  for (int i = 0; i < 2; ++i) {
    std::this_thread::sleep_for(milliseconds(30));
    EXPECT_TRUE(patience.lasts(away));
    EXPECT_TRUE(patience.is_new());
    patience.answered();
  }
  EXPECT_FALSE(patience.lasts(unknown)) << "asking again would not help";
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_FALSE(patience.lasts(away));
  EXPECT_FALSE(patience.is_new());
}

}  // namespace
}  // namespace flux2
