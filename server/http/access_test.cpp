#include "server/http/access.h"

#include <gtest/gtest.h>

#include <span>

#include "base/base64.h"
#include "server/http/errors.h"

namespace flux2 {
namespace {

ServerRequest request_to(const std::string& method, const std::string& path, Headers headers = {}) {
  ServerRequest request;
  request.method = method;
  request.path = path;
  request.headers = {{"host", "localhost:8190"}};
  for (auto& header : headers) {
    if (header.first == "host") request.headers.clear();
    request.headers.push_back(std::move(header));
  }
  request.remote_address = "127.0.0.1";
  return request;
}

std::string basic(const std::string& pair) {
  return "Basic " + base64_encode(std::as_bytes(std::span(pair.data(), pair.size())));
}

class AccessTest : public testing::Test {
 protected:
  Access access(AccessOptions options) {
    return Access(std::move(options), sessions_, [this] { return now_; });
  }
  static AccessOptions with_keys() {
    return {.keys = {hashed_key("gen", Scope::Generate), hashed_key("man", Scope::Manage), hashed_key("adm", Scope::Admin)},
            .users = {{"anna", hashed_key("secret", Scope::Generate)}}};
  }
  // 200 or the status of the refusal.
  static int status(Access& access, const ServerRequest& request, Scope needed = Scope::Generate) {
    try {
      access.check(request, needed);
      return 200;
    } catch (const HttpError& e) {
      return e.status;
    }
  }
  static int with_key(Access& access, const std::string& key, Scope needed = Scope::Generate) {
    return status(access, request_to("POST", "/v1/images/generations", {{"authorization", "Bearer " + key}}), needed);
  }

  MemorySessions sessions_;
  int64_t now_ = 1'000'000;
};

TEST_F(AccessTest, WithoutKeysEveryKeyIsAccepted) {
  Access a = access({});
  EXPECT_FALSE(a.needs_key());
  EXPECT_EQ(status(a, request_to("POST", "/v1/x"), Scope::Admin), 200);
  EXPECT_EQ(with_key(a, "any", Scope::Admin), 200);
}

TEST_F(AccessTest, KeysHaveScopes) {
  Access a = access(with_keys());
  EXPECT_EQ(with_key(a, "gen"), 200);
  EXPECT_EQ(with_key(a, "gen", Scope::Manage), 403);
  EXPECT_EQ(with_key(a, "man", Scope::Manage), 200);
  EXPECT_EQ(with_key(a, "man", Scope::Admin), 403);
  EXPECT_EQ(with_key(a, "adm", Scope::Admin), 200);
  EXPECT_EQ(with_key(a, "wrong"), 401);
  EXPECT_EQ(with_key(a, ""), 401);
  EXPECT_EQ(status(a, request_to("GET", "/health"), Scope::None), 200);
  EXPECT_EQ(status(a, request_to("GET", "/v1/models")), 401);
  EXPECT_EQ(status(a, request_to("GET", "/v1/models", {{"authorization", "bearer gen"}})), 200);
  EXPECT_EQ(status(a, request_to("GET", "/v1/models", {{"authorization", "gen"}})), 401);
  EXPECT_EQ(hashed_key("gen", Scope::Generate).sha256.size(), 64u);
  EXPECT_EQ(hashed_key("gen", Scope::Generate).sha256.find("gen"), std::string::npos);
}

TEST_F(AccessTest, BasicIsForA1111Only) {
  Access a = access(with_keys());
  EXPECT_EQ(status(a, request_to("POST", "/sdapi/v1/txt2img", {{"authorization", basic("whoever:gen")}})), 200);
  EXPECT_EQ(status(a, request_to("POST", "/sdapi/v1/txt2img", {{"authorization", basic("anna:secret")}})), 200);
  EXPECT_EQ(status(a, request_to("POST", "/sdapi/v1/txt2img", {{"authorization", basic("bert:secret")}})), 401);
  EXPECT_EQ(status(a, request_to("POST", "/sdapi/v1/txt2img", {{"authorization", "Basic %%%"}})), 401);
  EXPECT_EQ(status(a, request_to("POST", "/v1/x", {{"authorization", basic("whoever:gen")}})), 401);
  try {
    a.check(request_to("GET", "/sdapi/v1/options"), Scope::Generate);
    FAIL();
  } catch (const HttpError& e) {
    EXPECT_EQ(e.headers.at(0), (std::pair<std::string, std::string>("www-authenticate", "Basic realm=\"flux2\"")));
  }
}

TEST_F(AccessTest, KeyInTheAddressIsForStreams) {
  Access a = access(with_keys());
  ServerRequest events = request_to("GET", "/api/v1/events");
  events.query = {{"key", "gen"}};
  EXPECT_EQ(status(a, events), 200);
  events.path = "/api/v1/jobs";
  EXPECT_EQ(status(a, events), 401);
  events.headers.emplace_back("accept", "text/event-stream");
  EXPECT_EQ(status(a, events), 200);
  events.method = "POST";
  EXPECT_EQ(status(a, events), 401);
}

TEST_F(AccessTest, FiveWrongKeysBlockAnAddressForAMinute) {
  Access a = access(with_keys());
  for (int i = 0; i < 4; ++i) EXPECT_EQ(with_key(a, "wrong"), 401);
  now_ += 61;  // forgotten
  for (int i = 0; i < 5; ++i) EXPECT_EQ(with_key(a, "wrong"), 401);
  EXPECT_EQ(with_key(a, "wrong"), 429);
  EXPECT_EQ(with_key(a, "gen"), 429);
  ServerRequest other = request_to("GET", "/v1/models", {{"authorization", "Bearer gen"}});
  other.remote_address = "10.0.0.7";
  other.headers[0].second = "localhost";
  EXPECT_EQ(status(a, other), 200);
  now_ += 59;
  EXPECT_EQ(with_key(a, "gen"), 429);
  now_ += 1;
  EXPECT_EQ(with_key(a, "gen"), 200);
}

TEST_F(AccessTest, HostIsCheckedOnLoopback) {
  AccessOptions options;
  options.host_names = {"Box.local"};
  Access a = access(options);
  for (const char* host : {"localhost", "LOCALHOST:80", "127.0.0.1:8190", "[::1]:8190", "[::1]", "box.local:1"})
    EXPECT_EQ(status(a, request_to("GET", "/", {{"host", host}})), 200) << host;
  for (const char* host : {"", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "[::2]", "127.0.0.2"})
    EXPECT_EQ(status(a, request_to("GET", "/", {{"host", host}})), 421) << host;
  options.loopback = false;
  Access open = access(options);
  EXPECT_EQ(status(open, request_to("GET", "/", {{"host", "evil.example"}})), 200);
}

TEST_F(AccessTest, ForeignPagesCannotChangeAnything) {
  Access a = access({});
  EXPECT_EQ(status(a, request_to("POST", "/api/v1/jobs", {{"origin", "http://localhost:8190"}})), 200);
  EXPECT_EQ(status(a, request_to("POST", "/api/v1/jobs", {{"origin", "http://evil.example"}})), 403);
  EXPECT_EQ(status(a, request_to("POST", "/api/v1/jobs", {{"origin", "null"}})), 403);
  EXPECT_EQ(status(a, request_to("GET", "/api/v1/jobs", {{"origin", "http://evil.example"}})), 200)
      << "the browser hides the answer";
  EXPECT_EQ(status(a, request_to("GET", "/ws/1", {{"origin", "http://evil.example"}, {"upgrade", "websocket"}})), 403);
  EXPECT_EQ(status(a, request_to("GET", "/ws/1", {{"origin", "http://localhost:8190"}, {"upgrade", "websocket"}})), 200);
}

TEST_F(AccessTest, SessionsOfThePage) {
  Access a = access(with_keys());
  const HttpResponse response = a.sign_in(request_to("POST", "/api/v1/session"), "man");
  EXPECT_EQ(response.status, 204);
  const std::string set = response.headers.at(0).second;
  EXPECT_TRUE(set.starts_with("flux2="));
  EXPECT_NE(set.find("; Path=/; HttpOnly; SameSite=Strict; Max-Age=2592000"), std::string::npos);
  EXPECT_EQ(set.find("Secure"), std::string::npos);
  const std::string cookie = set.substr(0, set.find(';'));
  EXPECT_EQ(cookie.size(), 6u + 43u);

  const auto with = [&](const std::string& method, Headers more) {
    more.emplace_back("cookie", "other=1; " + cookie + "; x=y");
    return request_to(method, "/api/v1/jobs", std::move(more));
  };
  EXPECT_EQ(status(a, with("GET", {})), 200);
  EXPECT_EQ(status(a, with("GET", {}), Scope::Manage), 200);
  EXPECT_EQ(status(a, with("GET", {}), Scope::Admin), 403);
  EXPECT_EQ(status(a, with("POST", {})), 403) << "no X-Flux2";
  EXPECT_EQ(status(a, with("POST", {{"x-flux2", "1"}})), 200);
  EXPECT_EQ(status(a, with("POST", {{"x-flux2", "1"}, {"origin", "http://localhost:8190"}})), 200);
  EXPECT_EQ(status(a, with("POST", {{"x-flux2", "1"}, {"origin", "http://evil.example"}})), 403);
  EXPECT_EQ(status(a, with("DELETE", {{"authorization", "Bearer gen"}})), 200) << "a key needs neither";
  EXPECT_EQ(status(a, request_to("GET", "/api/v1/jobs", {{"cookie", "flux2=abc"}})), 401);
  EXPECT_EQ(status(a, request_to("GET", "/api/v1/jobs", {{"cookie", "xflux2=1; flux2x=2"}})), 401);

  now_ += 30 * 24 * 3600;
  EXPECT_EQ(status(a, with("GET", {})), 200);
  now_ += 1;
  EXPECT_EQ(status(a, with("GET", {})), 401) << "30 days are over";
  now_ -= 1;
  a.sign_out(with("DELETE", {}));
  EXPECT_EQ(status(a, with("GET", {})), 401);
  EXPECT_THROW(a.sign_in(request_to("POST", "/api/v1/session"), "wrong"), HttpError);
  EXPECT_THROW(a.sign_in(request_to("POST", "/api/v1/session", {{"origin", "http://evil.example"}}), "man"), HttpError);
}

TEST_F(AccessTest, ASessionEndsWithItsKey) {
  const auto cookie_of = [](const HttpResponse& answer) {
    for (const auto& [name, value] : answer.headers)
      if (name == "set-cookie") return value.substr(0, value.find(';'));
    return std::string();
  };
  const auto with = [&](Access& a, const std::string& cookie, Scope needed) {
    return status(a, request_to("GET", "/api/v1/jobs", {{"cookie", cookie}}), needed);
  };
  Access a = access(with_keys());
  a.set_more_keys({hashed_key("more", Scope::Admin)});
  const std::string page = cookie_of(a.sign_in(request_to("POST", "/api/v1/session"), "more"));
  EXPECT_EQ(with(a, page, Scope::Admin), 200);
  a.set_more_keys({hashed_key("more", Scope::Generate)});
  EXPECT_EQ(with(a, page, Scope::Generate), 200);
  EXPECT_EQ(with(a, page, Scope::Admin), 403) << "the key allows less now";
  a.set_more_keys({});
  EXPECT_EQ(with(a, page, Scope::Generate), 401);
}

TEST_F(AccessTest, ASignInThatNeededNoKeyOpensNothingLater) {
  Access open = access({});
  const HttpResponse answer = open.sign_in(request_to("POST", "/api/v1/session"), "x");
  EXPECT_EQ(answer.status, 204);
  EXPECT_TRUE(answer.headers.empty()) << "no session is stored";
  sessions_.add(hashed_key("token", Scope::Admin).sha256, "", Scope::Admin, now_);  // of an older version
  Access closed = access(with_keys());
  EXPECT_EQ(status(closed, request_to("GET", "/api/v1/jobs", {{"cookie", "flux2=token"}})), 401);
}

TEST_F(AccessTest, CookiesAreSecureUnderTls) {
  AccessOptions options = with_keys();
  options.tls = true;
  Access a = access(options);
  EXPECT_TRUE(a.sign_in(request_to("POST", "/api/v1/session"), "gen").headers.at(0).second.ends_with("; Secure"));
}

TEST_F(AccessTest, CorsIsForListedOrigins) {
  AccessOptions options;
  Access closed = access(options);
  const ServerRequest preflight =
      request_to("OPTIONS", "/v1/models", {{"origin", "https://app.example"}, {"access-control-request-method", "POST"}});
  EXPECT_FALSE(closed.preflight(preflight));
  EXPECT_TRUE(closed.cors_headers(preflight).empty());
  options.cors_origins = {"https://app.example"};
  Access a = access(options);
  const auto answer = a.preflight(preflight);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 204);
  EXPECT_EQ(a.cors_headers(preflight).at(0).second, "https://app.example");
  EXPECT_EQ(status(a, request_to("POST", "/v1/x", {{"origin", "https://app.example"}})), 200);
  EXPECT_EQ(status(a, request_to("POST", "/v1/x", {{"origin", "https://other.example"}})), 403);
  EXPECT_FALSE(a.preflight(
      request_to("OPTIONS", "/v1/models", {{"origin", "https://other.example"}, {"access-control-request-method", "POST"}})));
  EXPECT_FALSE(a.preflight(request_to("OPTIONS", "/v1/models", {{"origin", "https://app.example"}})));
}

TEST_F(AccessTest, SaysWhoSendsARequest) {
  AccessKey own = hashed_key("own limits", Scope::Generate, "laptop");
  own.limits = {.rate = 5};
  Access a = access({.keys = {own, hashed_key("other", Scope::Admin, "ops")}, .limits = {.rate = 100, .queue = 7}});
  const auto caller_of = [&](const Headers& headers) {
    Caller caller;
    a.check(request_to("GET", "/api/v1/jobs", headers), Scope::Generate, &caller);
    return caller;
  };
  const Caller laptop = caller_of({{"authorization", "Bearer own limits"}});
  EXPECT_EQ(laptop.name, "laptop");
  EXPECT_EQ(laptop.key, own.sha256);
  EXPECT_EQ(laptop.limits.rate, 5);
  EXPECT_EQ(laptop.limits.queue, 7);
  EXPECT_EQ(laptop.scope, Scope::Generate);
  EXPECT_EQ(caller_of({{"authorization", "Bearer other"}}).limits.rate, 100);

  // Whoever signed in with a key shares its limits.
  const HttpResponse answer = a.sign_in(request_to("POST", "/api/v1/session"), "own limits");
  std::string cookie;
  for (const auto& [name, value] : answer.headers)
    if (name == "set-cookie") cookie = value.substr(0, value.find(';'));
  const Caller page = caller_of({{"cookie", cookie}});
  EXPECT_EQ(page.key, laptop.key);
  EXPECT_EQ(page.limits.rate, 5);
}

}  // namespace
}  // namespace flux2
