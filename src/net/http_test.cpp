#include "net/http.h"

#include <gtest/gtest.h>

#include <map>

namespace flux2 {
namespace {

TEST(Http, HeadersAreFoundWhateverTheirCase) {
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

}  // namespace
}  // namespace flux2
