#include "server/http/url_target.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

using std::string_literals::operator""s;  // keeps NUL characters

using Pairs = std::vector<std::pair<std::string, std::string>>;

TEST(UrlTarget, DecodesPathAndQuery) {
  const UrlTarget target = parse_target("/v1/models/a%20b%2Fc?limit=5&q=a+b%26c&flag&=x&&limit=6");
  EXPECT_EQ(target.path, "/v1/models/a b/c");
  EXPECT_EQ(target.query, (Pairs{{"limit", "5"}, {"q", "a b&c"}, {"flag", ""}, {"", "x"}, {"limit", "6"}}));
  EXPECT_EQ(parse_target("/").path, "/");
  EXPECT_EQ(parse_target("/?").query, Pairs{});
  EXPECT_EQ(parse_target("http://host:80/a?b=c").path, "/a");
  EXPECT_EQ(parse_target("https://host").path, "/");
  EXPECT_EQ(parse_target("/a+b").path, "/a+b");
  EXPECT_EQ(parse_target("/%C3%A4.png").path, "/\xC3\xA4.png");
  EXPECT_EQ(parse_target("/...").path, "/...");
  EXPECT_EQ(parse_target("/a?b=../c").query, (Pairs{{"b", "../c"}}));
}

TEST(UrlTarget, DecodesOnlyOnce) { EXPECT_EQ(parse_target("/%252e%252e/x").path, "/%2e%2e/x"); }

TEST(UrlTarget, RefusesTricks) {
  for (const std::string target : {"",
                                   "a",
                                   "*",
                                   "host:443",
                                   "http:/x",
                                   "/..",
                                   "/a/..",
                                   "/../etc/passwd",
                                   "/%2e%2e/x",
                                   "/.%2E/x",
                                   "/a/./b",
                                   "/.",
                                   "/a%2f..%2fb",
                                   "/a\\..\\b",
                                   "/a%5cb",
                                   "/%00",
                                   "/a?b=%00",
                                   "/%",
                                   "/%4",
                                   "/%zz",
                                   "/a?b=%",
                                   "/%c0%ae%c0%ae/x",
                                   "/%ff",
                                   "/a?b=%ff",
                                   "/%ed%a0%80",
                                   "/a%0d%0ab",
                                   "/a%7f",
                                   "/a b",
                                   "/a#b",
                                   "/a\x01",
                                   "http://host/../x",
                                   "http://host?/../%00"})
    EXPECT_THROW(parse_target(target), Error) << target;
  EXPECT_THROW(parse_target("/a\0b"s), Error);
  std::string many = "/?";
  for (int i = 0; i < 257; ++i) many += "a&";
  EXPECT_THROW(parse_target(many), Error);
}

}  // namespace
}  // namespace flux2
