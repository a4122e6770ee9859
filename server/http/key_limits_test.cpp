#include "server/http/key_limits.h"

#include <gtest/gtest.h>

#include "server/http/errors.h"

namespace flux2 {
namespace {

const Caller kThree{.key = "a", .name = "app", .limits = {.rate = 3}};

int refused_after(RateMeter& meter, const Caller& caller, int64_t now) {
  for (int i = 0; i < 100; ++i) {
    try {
      meter.count(caller, now);
    } catch (const HttpError& e) {
      EXPECT_EQ(e.status, 429);
      EXPECT_EQ(e.code, "rate_limit_exceeded");
      EXPECT_EQ(e.headers.at(0).first, "retry-after");
      return i;
    }
  }
  return 100;
}

TEST(RateMeter, RefusesWhatIsTooMuchAndComesBackWithTime) {
  RateMeter meter;
  EXPECT_EQ(refused_after(meter, kThree, 1000), 3);
  EXPECT_EQ(refused_after(meter, kThree, 20'000), 0) << "a third of a minute gives one request, 19 seconds do not";
  EXPECT_EQ(refused_after(meter, kThree, 21'100), 1);
  EXPECT_EQ(refused_after(meter, kThree, 10'000'000), 3) << "never more than a minute's worth";
}

TEST(RateMeter, SaysHowLongToWait) {
  RateMeter meter;
  refused_after(meter, kThree, 0);
  try {
    meter.count(kThree, 5000);
    FAIL();
  } catch (const HttpError& e) {
    EXPECT_EQ(e.headers.at(0).second, "15");
    EXPECT_STREQ(e.what(), "This key may send 3 requests a minute.");
  }
}

TEST(RateMeter, KeysDoNotDisturbEachOther) {
  RateMeter meter;
  EXPECT_EQ(refused_after(meter, kThree, 0), 3);
  EXPECT_EQ(refused_after(meter, {.key = "b", .name = "", .limits = {.rate = 5}}, 0), 5);
  EXPECT_EQ(refused_after(meter, {.key = "c", .name = "", .limits = {}}, 0), 100) << "no limit";
}

TEST(RateMeter, AClockThatGoesBackGivesNothing) {
  RateMeter meter;
  EXPECT_EQ(refused_after(meter, kThree, 100'000), 3);
  EXPECT_EQ(refused_after(meter, kThree, 0), 0);
}

TEST(KeyLimits, DefaultsFillWhatIsNotSet) {
  const KeyLimits limits = KeyLimits{.rate = 5}.or_else({.rate = 1, .queue = 2, .work = 3});
  EXPECT_EQ(limits.rate, 5);
  EXPECT_EQ(limits.queue, 2);
  EXPECT_EQ(limits.work, 3);
}

}  // namespace
}  // namespace flux2
