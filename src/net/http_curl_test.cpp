#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"
#include "net/http.h"
#include "net/public_address.h"
#include "tests/support/http_server.h"

namespace flux2 {
namespace {

using test::HttpServer;
using test::Reply;
using test::ServedRequest;

TEST(HttpClient, SendsTheRequest) {
  HttpServer server([](const ServedRequest& r) {
    return Reply{.headers = {{"X-Seen", r.header("x-extra")}}, .body = r.method + r.body};
  });
  const HttpClient client;
  const HttpAnswer got = client.send({.url = server.url() + "/a?b", .headers = {{"X-Extra", "yes"}}});
  EXPECT_EQ(got.status, 200);
  EXPECT_EQ(got.body, "GET");
  EXPECT_EQ(got.header("x-seen"), "yes");
  EXPECT_EQ(client.send({.method = "POST", .url = server.url(), .body = "{\"paths\":[]}"}).body, "POST{\"paths\":[]}");
  const HttpAnswer head = client.send({.method = "HEAD", .url = server.url()});
  EXPECT_EQ(head.body, "");
  EXPECT_EQ(head.header("Content-Length"), "4");
  EXPECT_EQ(server.requests().at(0).target, "/a?b");
}

TEST(HttpClient, DeletesAndSigns) {
  HttpServer server([](const ServedRequest& r) { return Reply{.body = r.method + r.body}; });
  const HttpClient client;
  EXPECT_EQ(client.send({.method = "DELETE", .url = server.url()}).body, "DELETE");
  EXPECT_EQ(client.send({.url = server.url()}).body, "GET") << "the method stays with its request";
  const AwsSigner signer{.access_key = "the-key", .secret_key = "the-secret", .session_token = {}, .region = "eu-north-1"};
  for (const char* method : {"GET", "HEAD", "PUT", "DELETE"}) {
    client.send({.method = method,
                 .url = server.url() + "/bucket/key",
                 .headers = {{"content-type", "image/png"}},
                 .body = "abc",
                 .signer = &signer});
    const ServedRequest seen = server.requests().back();
    EXPECT_EQ(seen.method, method);
    EXPECT_TRUE(seen.header("authorization").starts_with("AWS4-HMAC-SHA256 Credential=the-key/")) << seen.header("authorization");
    EXPECT_NE(seen.header("authorization").find("/eu-north-1/s3/aws4_request"), std::string::npos);
    EXPECT_EQ(seen.header("x-amz-content-sha256").size(), 64u) << method;
    for (const auto& [name, value] : seen.headers) EXPECT_EQ(value.find("the-secret"), std::string::npos) << name;
  }
  client.send({.url = server.url()});
  EXPECT_EQ(server.requests().back().header("authorization"), "") << "the signature stays with its request";
}

TEST(HttpClient, EveryAddressOfAChainOfRedirectsIsChecked) {
  HttpServer inner([](const ServedRequest&) { return Reply{.body = "secret"}; });
  HttpServer outer([&](const ServedRequest&) { return Reply{.status = 302, .headers = {{"Location", inner.url() + "/x"}}}; });
  HttpSettings settings;
  settings.allows_address = [](const sockaddr* address) { return is_public_address(address); };
  const HttpAnswer refused = HttpClient(settings).send({.url = outer.url()});
  EXPECT_EQ(refused.status, 0);
  EXPECT_EQ(refused.failure, "the address 127.0.0.1 is not allowed");
  EXPECT_FALSE(refused.transient);
  EXPECT_TRUE(outer.requests().empty()) << "not even a connection was made";

  // As if the first address were public.
  bool first = true;
  settings.allows_address = [&](const sockaddr* address) { return std::exchange(first, false) || is_public_address(address); };
  settings.http_proxy = outer.url();  // which would hide where the connection ends
  const HttpAnswer followed = send_following(HttpClient(settings), {.url = outer.url()});
  EXPECT_EQ(followed.failure, "the address 127.0.0.1 is not allowed");
  EXPECT_EQ(outer.requests().size(), 1u);
  EXPECT_TRUE(inner.requests().empty());
}

TEST(HttpClient, PutSendsTheBodyAsItIs) {
  HttpServer server([](const ServedRequest& r) {
    return Reply{.headers = {{"ETag", "\"1\""}, {"X-Type", r.header("content-type")}}, .body = r.method};
  });
  const HttpClient client;
  std::string body(3 << 20, 'x');
  body[5] = '\0';
  const HttpAnswer stored = client.send({.method = "PUT", .url = server.url() + "/part", .body = body});
  EXPECT_EQ(server.requests().at(0).header("expect"), "") << "it would wait a second for \"100 Continue\"";
  EXPECT_EQ(stored.body, "PUT");
  EXPECT_EQ(stored.header("ETag"), "\"1\"");
  EXPECT_EQ(stored.header("X-Type"), "");  // in particular no form
  EXPECT_TRUE(server.requests().at(0).body == body);
  const HttpAnswer typed =
      client.send({.method = "PUT", .url = server.url(), .headers = {{"content-type", "image/png"}}, .body = "y"});
  EXPECT_EQ(typed.header("X-Type"), "image/png");
  EXPECT_EQ(client.send({.method = "PUT", .url = server.url()}).status, 200);  // no body
  EXPECT_EQ(server.requests().back().header("content-length"), "0");
  // The same connection then serves other methods.
  EXPECT_EQ(client.send({.url = server.url()}).body, "GET");
  EXPECT_EQ(client.send({.method = "POST", .url = server.url(), .body = "z"}).body, "POST");
  EXPECT_EQ(client.send({.method = "HEAD", .url = server.url()}).header("Content-Length"), "4");
}

// A server that reads slowly sends nothing meanwhile; that is not silence.
TEST(HttpClient, ALongUploadIsNotIdle) {
  constexpr size_t kBody = 16 << 20;
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int small = 256 << 10;
  ::setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length), 0);
  std::jthread reader([&] {
    const int socket = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    std::vector<char> piece(512 << 10);
    for (size_t taken = 0; taken < kBody;) {
      const ssize_t n = ::recv(socket, piece.data(), piece.size(), MSG_WAITALL);
      if (n <= 0) break;
      taken += static_cast<size_t>(n);
      std::this_thread::sleep_for(std::chrono::milliseconds(taken < kBody ? 50 : 0));
    }
    const std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone";
    EXPECT_EQ(::send(socket, answer.data(), answer.size(), MSG_NOSIGNAL), static_cast<ssize_t>(answer.size()));
    ::close(socket);
  });
  const HttpAnswer answer = HttpClient().send({.method = "PUT",
                                               .url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)),
                                               .body = std::string(kBody, 'x'),
                                               .idle_timeout_s = 1});
  EXPECT_EQ(answer.failure, "");
  EXPECT_EQ(answer.body, "done");
  reader.join();
  ::close(listener);
}

TEST(HttpClient, TheTokenGoesOverLoopbackAndHttpsOnly) {
  HttpServer server([](const ServedRequest& r) { return Reply{.body = r.header("authorization")}; });
  const HttpClient client;
  EXPECT_EQ(client.send({.url = server.url(), .token = "hf_x"}).body, "Bearer hf_x");
  // The same server as a proxy for a host elsewhere, in plain text: the token stays at home.
  const HttpClient through({.http_proxy = server.url()});
  EXPECT_EQ(through.send({.url = "http://hub.example/x", .token = "hf_x"}).body, "");
  EXPECT_EQ(server.requests().back().target, "http://hub.example/x");
  const HttpClient around({.http_proxy = "http://127.0.0.1:1", .no_proxy = "127.0.0.1"});
  EXPECT_EQ(around.send({.url = server.url(), .token = "t"}).body, "Bearer t");
}

TEST(HttpClient, ASinkTakesTheBodyAndMayDecline) {
  const std::string body(300000, 'x');
  HttpServer server(
      [&](const ServedRequest& r) { return r.target == "/gone" ? Reply{.status = 404, .body = "no"} : Reply{.body = body}; });
  const HttpClient client;
  size_t taken = 0, begun = 0;
  const HttpSink sink{.begin =
                          [&](const HttpAnswer& head) {
                            begun += head.status == 200;
                            return true;
                          },
                      .data = [&](std::span<const std::byte> bytes) { taken += bytes.size(); }};
  EXPECT_EQ(client.send({.url = server.url()}, sink).body, "");
  EXPECT_EQ(taken, body.size());
  EXPECT_EQ(begun, 1u);
  const HttpAnswer gone = client.send({.url = server.url() + "/gone"}, sink);
  EXPECT_EQ(gone.status, 404);
  EXPECT_EQ(gone.body, "no");  // an error's text is kept, the sink never sees it
  EXPECT_EQ(taken, body.size());
  const HttpAnswer declined = client.send({.url = server.url()}, {.begin = [](const HttpAnswer&) { return false; }});
  EXPECT_TRUE(declined.ok());
  EXPECT_EQ(declined.body, "");
}

TEST(HttpClient, SinkExceptionsPropagate) {
  HttpServer server([](const ServedRequest&) { return Reply{.body = "x"}; });
  EXPECT_THROW(HttpClient().send({.url = server.url()},
                                 {.data = [](std::span<const std::byte>) { fail(ErrorCode::CannotWrite, "full"); }}),
               Error);
}

TEST(HttpClient, ReportsHowATransferFailed) {
  HttpServer server([](const ServedRequest& r) {
    if (r.target == "/slow") return Reply{.body = "x", .wait_s = 60};
    return Reply{.body = std::string(1000, 'x'), .drop_after = 10};
  });
  const HttpClient client;
  const HttpAnswer dropped = client.send({.url = server.url()});
  EXPECT_TRUE(dropped.failed());
  EXPECT_TRUE(dropped.transient);
  EXPECT_EQ(dropped.status, 200);
  const auto start = std::chrono::steady_clock::now();
  const HttpAnswer slow = client.send({.url = server.url() + "/slow", .idle_timeout_s = 0.3});
  EXPECT_NE(slow.failure.find("no data for 0.3 s"), std::string::npos) << slow.failure;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  const HttpAnswer nobody = client.send({.url = "http://127.0.0.1:1/"});
  EXPECT_EQ(nobody.status, 0);
  EXPECT_TRUE(nobody.failed() && nobody.transient);
}

TEST(HttpClient, RejectsLongAnswersAndBadHeaders) {
  HttpServer server([](const ServedRequest&) { return Reply{.body = std::string(5000, 'x')}; });
  EXPECT_THROW(HttpClient().send({.url = server.url(), .max_body = 4999}), Error);
  EXPECT_THROW(HttpClient().send({.url = server.url(), .headers = {{"X", "a\r\nY: b"}}}), Error);
  EXPECT_THROW(HttpClient().send({.url = server.url(), .token = "a\nb"}), Error);
}

TEST(HttpClient, CanBeCancelled) {
  HttpServer server([](const ServedRequest&) { return Reply{.body = "x", .wait_s = 5}; });
  std::atomic<bool> stop = false;
  std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stop = true;
  });
  try {
    HttpClient().send({.url = server.url(), .cancelled = [&] { return stop.load(); }});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::Cancelled);
  }
}

TEST(Redirect, TokenIsNotForwardedToOtherHosts) {
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

TEST(Redirect, LimitsTheNumberOfRedirects) {
  HttpServer server([](const ServedRequest& r) { return Reply{.status = 302, .headers = {{"Location", r.target + "x"}}}; });
  EXPECT_THROW(send_following(HttpClient(), {.url = server.url() + "/"}), Error);
  EXPECT_EQ(server.requests().size(), 11u);
  HttpServer odd([](const ServedRequest&) { return Reply{.status = 302, .headers = {{"Location", "file:///etc/passwd"}}}; });
  EXPECT_THROW(send_following(HttpClient(), {.url = odd.url()}), Error);
}

}  // namespace
}  // namespace flux2
