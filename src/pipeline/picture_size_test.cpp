#include "pipeline/picture_size.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace flux2 {
namespace {

TEST(PictureSize, ReadsNumbersAndNames) {
  EXPECT_EQ(parse_picture_size("768x512").width, 768);
  EXPECT_EQ(parse_picture_size("768X512").height, 512);
  EXPECT_EQ(parse_picture_size("768").height, 768);
  EXPECT_EQ(parse_picture_size("21:9").width, 1536);
  EXPECT_EQ(parse_picture_size("21:9").height, 656);
  for (const char* bad : {"", "x", "0", "768x", "x512", "768x512x3", "-16x16", "0x64", "99999999999x64", "wide"})
    EXPECT_THROW(parse_picture_size(bad), Error) << bad;
}

TEST(PictureSize, RoundsToSixteenWithAWarning) {
  std::vector<std::string> warnings;
  const Log log([&](LogLevel, const std::string& text) { warnings.push_back(text); });
  const PictureSize size = valid_picture_size({1000, 999}, false, log);
  EXPECT_EQ(size.width, 1008);  // 1000 lies halfway between 992 and 1008: upward
  EXPECT_EQ(size.height, 992);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("1008x992"), std::string::npos);
  EXPECT_THROW(valid_picture_size({1000, 999}, true, log), Error);
  EXPECT_EQ(valid_picture_size({1024, 64}, true, log).height, 64);
}

TEST(PictureSize, EnforcesItsLimits) {
  int warnings = 0;
  const Log log([&](LogLevel, const std::string&) { ++warnings; });
  EXPECT_THROW(valid_picture_size({48, 512}, false, log), Error);
  EXPECT_THROW(valid_picture_size({512, 4112}, false, log), Error);
  EXPECT_THROW(valid_picture_size({-5, 512}, false, log), Error);
  EXPECT_EQ(warnings, 0);
  EXPECT_EQ(valid_picture_size({4096, 2048}, true, log).width, 4096);
  EXPECT_EQ(warnings, 1);  // large, but allowed
}

TEST(PictureSize, FollowsAnotherImage) {
  const auto like = [](int width, int height) {
    const PictureSize size = size_like({width, height});
    return std::pair(size.width, size.height);
  };
  EXPECT_EQ(like(1920, 1080), std::pair(1920, 1072));
  EXPECT_EQ(like(64, 79), std::pair(64, 64));
  EXPECT_EQ(like(4032, 3024), std::pair(2352, 1760));  // 4.2 megapixels
  EXPECT_EQ(like(6000, 750), std::pair(4096, 512));
}

}  // namespace
}  // namespace flux2
