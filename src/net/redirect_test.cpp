#include "net/redirect.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/http_server.h"

namespace flux2 {
namespace {

using test::HttpServer;
using test::Reply;
using test::ServedRequest;

TEST(Redirect, TheTokenStaysWithItsHost) {
  HttpServer storage([](const ServedRequest& r) { return Reply{.body = "storage" + r.header("authorization")}; });
  HttpServer hub([&](const ServedRequest& r) {
    if (r.target == "/old") return Reply{.status = 307, .headers = {{"Location", "/new"}}};
    if (r.target == "/new") return Reply{.body = "hub" + r.header("authorization")};
    return Reply{.status = 302, .headers = {{"Location", storage.url() + "/signed"}}, .body = "moved"};
  });
  const HttpClient client;
  EXPECT_EQ(send_following(client, {.url = hub.url() + "/old", .token = "t"}).body, "hubBearer t");
  const HttpAnswer away = send_following(client, {.url = hub.url() + "/large", .token = "t"});
  EXPECT_EQ(away.body, "storage");
  EXPECT_EQ(away.url, storage.url() + "/signed");
}

TEST(Redirect, EndsSomewhere) {
  HttpServer server([](const ServedRequest& r) { return Reply{.status = 302, .headers = {{"Location", r.target + "x"}}}; });
  EXPECT_THROW(send_following(HttpClient(), {.url = server.url() + "/"}), Error);
  EXPECT_EQ(server.requests().size(), 11u);
  HttpServer odd([](const ServedRequest&) { return Reply{.status = 302, .headers = {{"Location", "file:///etc/passwd"}}}; });
  EXPECT_THROW(send_following(HttpClient(), {.url = odd.url()}), Error);
}

}  // namespace
}  // namespace flux2
