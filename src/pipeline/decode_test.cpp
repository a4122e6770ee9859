#include "pipeline/decode.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace flux2 {
namespace {

DecodedPicture filled(float value) { return DecodedPicture(Planes{2, 2, std::vector<float>(12, value)}); }

struct Heard {
  Heard(const Heard&) = delete;
  Heard& operator=(const Heard&) = delete;
  std::vector<std::string> warnings;
  Heard() {
    session.log = Log([this](LogLevel level, const std::string& text) {
      if (level == LogLevel::Warning) warnings.push_back(text);
    });
  }
  Session session;
};

TEST(CheckedDecode, KeepsGoodImages) {
  Heard heard;
  bool retried = true;
  EXPECT_EQ(checked_decode([] { return filled(0.5f); }, [] { return filled(9.0f); }, heard.session, retried).planes().values[0],
            0.5f);
  EXPECT_FALSE(retried);
  EXPECT_TRUE(heard.warnings.empty());
}

TEST(CheckedDecode, RetriesInF32) {
  for (float bad : {NAN, -1.0f}) {
    Heard heard;
    bool retried = false;
    EXPECT_EQ(
        checked_decode([&] { return filled(bad); }, [] { return filled(0.25f); }, heard.session, retried).planes().values[0],
        0.25f);
    EXPECT_TRUE(retried);
    EXPECT_EQ(heard.warnings.size(), 1u);
  }
}

TEST(CheckedDecode, FailsOnNaNButNotOnBlack) {
  Heard heard;
  bool retried = false;
  EXPECT_THROW(checked_decode([] { return filled(NAN); }, [] { return filled(NAN); }, heard.session, retried), Error);
  EXPECT_THROW(checked_decode([] { return filled(NAN); }, nullptr, heard.session, retried), Error);
  EXPECT_EQ(checked_decode([] { return filled(-1.0f); }, [] { return filled(-1.0f); }, heard.session, retried).planes().values[0],
            -1.0f);
}

}  // namespace
}  // namespace flux2
