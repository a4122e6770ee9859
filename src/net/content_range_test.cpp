#include "net/content_range.h"

#include <gtest/gtest.h>

namespace flux2 {
namespace {

HttpAnswer with(int status, const char* name, const char* value) { return {.status = status, .headers = {{name, value}}}; }

TEST(ContentRange, ComesApart) {
  EXPECT_EQ(content_range(with(206, "Content-Range", "bytes 5-9/10")).begin, 5u);
  EXPECT_EQ(content_range(with(206, "Content-Range", "bytes 5-9/10")).total, 10u);
  EXPECT_EQ(content_range(with(416, "Content-Range", "bytes */64446562304")).total, 64446562304u);
  EXPECT_FALSE(content_range(with(416, "Content-Range", "bytes */10")).begin);
  EXPECT_FALSE(content_range(with(206, "Content-Range", "bytes 0-9/*")).total);
  for (const char* bad :
       {"", "5-9/10", "bytes", "bytes ", "bytes x-9/y", "bytes -9/-10", "bytes 99999999999999999999-1/99999999999999999999"}) {
    EXPECT_FALSE(content_range(with(206, "Content-Range", bad)).begin) << bad;
    EXPECT_FALSE(content_range(with(206, "Content-Range", bad)).total) << bad;
  }
}

TEST(ContentRange, TheWholeSize) {
  EXPECT_EQ(whole_size(with(200, "Content-Length", "7")), 7u);
  EXPECT_FALSE(whole_size(with(206, "Content-Length", "7")));
  EXPECT_EQ(whole_size(with(206, "Content-Range", "bytes 0-0/7")), 7u);
  EXPECT_FALSE(whole_size(with(200, "Content-Length", "7x")));
}

TEST(ContentRange, BareEtags) {
  EXPECT_EQ(bare_etag("\"abc\""), "abc");
  EXPECT_EQ(bare_etag("W/\"abc\""), "abc");
  EXPECT_EQ(bare_etag("abc"), "abc");
  EXPECT_EQ(bare_etag("\""), "\"");
}

}  // namespace
}  // namespace flux2
