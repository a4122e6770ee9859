#include "net/url.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

TEST(Url, ParsesParts) {
  const Url u = parse_url("HTTPS://Hub.Example/a/b%20c?x=1#part");
  EXPECT_EQ(u.scheme, "https");
  EXPECT_EQ(u.host, "hub.example");
  EXPECT_EQ(u.port, 443);
  EXPECT_EQ(u.target, "/a/b%20c?x=1");
  EXPECT_EQ(u.text(), "https://hub.example/a/b%20c?x=1");
  EXPECT_EQ(file_name_of(u), "b c");
  EXPECT_EQ(parse_url("http://host").target, "/");
  EXPECT_EQ(parse_url("http://host?q").target, "/?q");
  EXPECT_EQ(parse_url("http://[::1]:8080/x").host, "[::1]");
  EXPECT_EQ(parse_url("http://[::1]:8080/x").port, 8080);
}

TEST(Url, RejectsInvalidUrls) {
  for (const char* bad :
       {"", "host/x", "ftp://host/x", "file:///etc/passwd", "http://", "http://:80/", "http://h:0/", "http://h:99999/",
        "http://h:8a/", "http://me:secret@host/", "http://h/a b", "http://h/\r\nX: y", "http://[::1/"})
    EXPECT_THROW(parse_url(bad), Error) << bad;
  try {
    parse_url("https://me:secret@host/x");
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find("secret"), std::string::npos);
  }
}

TEST(Url, RecognisesLoopback) {
  for (const char* here : {"http://localhost:1/", "http://127.0.0.1/", "http://127.8.9.1:5/", "http://[::1]/"})
    EXPECT_TRUE(parse_url(here).loopback()) << here;
  for (const char* there : {"http://127.evil.example/", "http://localhost.example/", "http://10.0.0.1/", "http://128.0.0.1/"})
    EXPECT_FALSE(parse_url(there).loopback()) << there;
}

TEST(Url, AnOriginIsSchemeHostAndPort) {
  EXPECT_TRUE(same_origin("https://a/x", "https://A:443/y"));
  EXPECT_FALSE(same_origin("https://a/", "http://a/"));
  EXPECT_FALSE(same_origin("http://a:1/", "http://a:2/"));
  EXPECT_FALSE(same_origin("https://a/", "https://b.a/"));
}

TEST(Url, ResolvesLocationsRelativeToTheirOrigin) {
  EXPECT_EQ(resolve_location("https://h/a/b?q", "/c/d"), "https://h/c/d");
  EXPECT_EQ(resolve_location("https://h/a/b?q", "c"), "https://h/a/c");
  EXPECT_EQ(resolve_location("https://h/a/b?q", "?r=1"), "https://h/a/b?r=1");
  EXPECT_EQ(resolve_location("https://h/a/b", "//cdn/x"), "https://cdn/x");
  EXPECT_EQ(resolve_location("https://h/a/b", "http://cdn:81/x"), "http://cdn:81/x");
  EXPECT_TRUE(is_relative_location("/api/resolve-cache/x?to=https://y/"));
  EXPECT_FALSE(is_relative_location("https://y/"));
  EXPECT_FALSE(is_relative_location("//y/"));
  EXPECT_THROW(resolve_location("https://h/", "ftp://x/"), Error);
}

TEST(Url, QuotingRoundTrips) {
  EXPECT_EQ(url_quoted("refs/pr/1"), "refs%2Fpr%2F1");
  EXPECT_EQ(url_quoted_path("a b/ü#.txt"), "a%20b/%C3%BC%23.txt");
  EXPECT_EQ(url_unquoted("a%20b%2fc%"), "a b/c%");
}

}  // namespace
}  // namespace flux2
