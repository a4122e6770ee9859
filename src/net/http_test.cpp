#include "net/http.h"

#include <gtest/gtest.h>

#include <map>

namespace flux2 {
namespace {

TEST(Http, HeaderNamesIgnoreCase) {
  HttpAnswer a;
  a.headers = {{"X-Repo-Commit", "abc"}, {"etag", "\"1\""}};
  EXPECT_EQ(a.header("x-repo-commit"), "abc");
  EXPECT_EQ(a.header("ETag"), "\"1\"");
  EXPECT_FALSE(a.header("Link"));
}

TEST(Http, SettingsComeFromTheUsualVariables) {
  const std::map<std::string, std::string> set = {{"HTTPS_PROXY", "http://p:1"},
                                                  {"ALL_PROXY", "http://q:2"},
                                                  {"NO_PROXY", "localhost"},
                                                  {"SSL_CERT_FILE", ""},
                                                  {"REQUESTS_CA_BUNDLE", "/ca.pem"}};
  const HttpSettings s = http_settings([&](const char* name) { return set.contains(name) ? set.at(name).c_str() : nullptr; });
  EXPECT_EQ(s.https_proxy, "http://p:1");
  EXPECT_EQ(s.http_proxy, "http://q:2");
  EXPECT_EQ(s.no_proxy, "localhost");
  EXPECT_EQ(s.ca_file, "/ca.pem");
  EXPECT_EQ(s.ca_folder, "");
}

HttpAnswer with(int status, const char* name, const char* value) { return {.status = status, .headers = {{name, value}}}; }

TEST(Http, ParsesContentRange) {
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

TEST(Http, TheWholeSizeOfAFile) {
  EXPECT_EQ(whole_size(with(200, "Content-Length", "7")), 7u);
  EXPECT_FALSE(whole_size(with(206, "Content-Length", "7")));
  EXPECT_EQ(whole_size(with(206, "Content-Range", "bytes 0-0/7")), 7u);
  EXPECT_FALSE(whole_size(with(200, "Content-Length", "7x")));
}

TEST(Http, EtagsLoseTheirQuotes) {
  EXPECT_EQ(bare_etag("\"abc\""), "abc");
  EXPECT_EQ(bare_etag("W/\"abc\""), "abc");
  EXPECT_EQ(bare_etag("abc"), "abc");
  EXPECT_EQ(bare_etag("\""), "\"");
}

}  // namespace
}  // namespace flux2
