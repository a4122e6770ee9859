#include "hub/remote/retry.h"

#include <gtest/gtest.h>

#include <chrono>

#include "base/error.h"

namespace flux2 {
namespace {

TEST(Retry, RecognisesTransientFailures) {
  for (const int status : {408, 429, 500, 502, 503, 504}) EXPECT_TRUE(is_worth_retrying({.status = status})) << status;
  for (const int status : {200, 206, 302, 400, 401, 403, 404, 416, 501})
    EXPECT_FALSE(is_worth_retrying({.status = status})) << status;
  EXPECT_TRUE(is_worth_retrying({.status = 200, .failure = "dropped", .transient = true}));
  EXPECT_FALSE(is_worth_retrying({.failure = "bad certificate"}));
}

TEST(Retry, PausesGrowAndProgressResetsThem) {
  std::vector<std::string> said;
  Retry retry({.tries = 5, .first_s = 0.001, .longest_s = 0.004}, {},
              Log([&](LogLevel, const std::string& text) { said.push_back(text); }));
  for (int i = 0; i < 4; ++i) retry.wait({.status = 503}, "x");
  retry.progress();
  retry.wait({.status = 503}, "x");
  EXPECT_EQ(said, (std::vector<std::string>{
                      "x: the server answers 503; trying again in 0.001 s", "x: the server answers 503; trying again in 0.002 s",
                      "x: the server answers 503; trying again in 0.004 s", "x: the server answers 503; trying again in 0.004 s",
                      "x: the server answers 503; trying again in 0.001 s"}));
  for (int i = 0; i < 3; ++i) retry.wait({.status = 503}, "x");
  EXPECT_THROW(retry.wait({.status = 503}, "x"), Error);
}

TEST(Retry, RespectsRetryAfter) {
  const auto waited = [](const std::string& value) {
    const auto start = std::chrono::steady_clock::now();
    Retry({.first_s = 0.001}, {}, {}).wait({.status = 429, .headers = {{"Retry-After", value}}}, "x");
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  EXPECT_GE(waited("1"), 1.0);
  EXPECT_LT(waited("Wed, 21 Oct 2015 07:28:00 GMT"), 0.5);
  EXPECT_LT(waited("nonsense"), 0.5);
  EXPECT_THROW(waited("3600"), Error);
  EXPECT_THROW(waited("99999999999999999999"), Error);
}

}  // namespace
}  // namespace flux2
