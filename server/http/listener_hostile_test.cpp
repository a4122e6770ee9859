// Requests that nobody honest sends: a status of refusal or a closed connection, and the server goes on.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <set>
#include <thread>

#include "server/http/errors.h"
#include "server/http/listener.h"
#include "server/http/test_client.h"

namespace flux2 {
namespace {

using std::string_literals::operator""s;  // keeps NUL characters

using test::eventually;
using test::get;
using test::RawClient;
using test::TestServer;

struct Hostile {
  std::string name, bytes;
  std::set<int> statuses;  // 0: closed without an answer
};

std::string post(const std::string& headers, const std::string& body) {
  return "POST /api/v1/jobs HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n" + body;
}

std::string form(const std::string& body) {
  return post("Content-Type: multipart/form-data; boundary=b\r\nContent-Length: " + std::to_string(body.size()) + "\r\n", body);
}

std::vector<Hostile> hostile_requests() {
  std::vector<Hostile> all = {
      {"bare LF", "GET / HTTP/1.1\nHost: h\n\n", {400}},
      {"NUL in a header", "GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n"s, {400}},
      {"no host", "GET / HTTP/1.1\r\n\r\n", {400}},
      {"garbage", std::string(3000, '\xfe') + "\r\n\r\n", {400}},
      {"TLS hello", "\x16\x03\x01\x02\x01\x01\x01\x01\xfc\x03\x03", {400}},
      {"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 505}},
      {"huge header", get("/", "X: " + std::string(100000, 'x') + "\r\n"), {431}},
      {"endless header", "GET / HTTP/1.1\r\nHost: h\r\nX: " + std::string(500000, 'x'), {431}},
      {"many headers",
       get("/",
           [] {
             std::string lines;
             for (int i = 0; i < 1500; ++i) lines += "a: b\r\n";
             return lines;
           }()),
       {431}},
      {"long address", get("/" + std::string(10000, 'a')), {414}},
      {"endless address", "GET /" + std::string(500000, 'a'), {414, 431}},
      {"climbing", get("/../../etc/passwd"), {400}},
      {"climbing, encoded", get("/%2e%2e/%2e%2e/etc/passwd"), {400}},
      {"climbing, backslash", get("/..%5c..%5cetc"), {400}},
      {"climbing, overlong", get("/%c0%ae%c0%ae/x"), {400}},
      {"NUL in the address", get("/a%00.png"), {400}},
      {"line break in the address", get("/a%0d%0aX:%20y"), {400}},
      {"asterisk", "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", {400}},
      {"authority", "CONNECT h:443 HTTP/1.1\r\nHost: h\r\n\r\n", {400}},
      {"two lengths", post("Content-Length: 1\r\nContent-Length: 2\r\n", "xx"), {400}},
      {"length and chunks", post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), {400}},
      {"negative length", post("Content-Length: -5\r\n", "x"), {400}},
      {"huge length", post("Content-Length: 18446744073709551615\r\n", "x"), {400, 413}},
      {"too long body", post("Content-Length: 99999999\r\n", "x"), {413}},
      {"unknown encoding", post("Transfer-Encoding: identity\r\n", "x"), {501}},
      {"chunk without size", post("Transfer-Encoding: chunked\r\n", "\r\n\r\n"), {400}},
      {"chunk with sign", post("Transfer-Encoding: chunked\r\n", "-1\r\nx\r\n"), {400}},
      {"chunk too large", post("Transfer-Encoding: chunked\r\n", "ffffffffffffffff1\r\nx\r\n"), {400}},
      {"chunk of 2^64-1", post("Transfer-Encoding: chunked\r\n", "ffffffffffffffff\r\n" + std::string(3 << 20, 'x')), {400, 413}},
      {"chunk too short", post("Transfer-Encoding: chunked\r\n", "2\r\nxyz\r\n0\r\n\r\n"), {400}},
      {"endless chunk extension", post("Transfer-Encoding: chunked\r\n", "1;" + std::string(300000, 'x')), {400}},
      {"endless trailer", post("Transfer-Encoding: chunked\r\n", "0\r\nX: " + std::string(300000, 'x')), {400, 431}},
      {"unknown expectation", post("Expect: more\r\nContent-Length: 1\r\n", "x"), {417}},
      {"form without boundary", post("Content-Type: multipart/form-data\r\nContent-Length: 1\r\n", "x"), {400}},
      {"truncated form", form("--b\r\nContent-Disposition: form-data; name=a\r\n\r\nx"), {400}},
      {"form without parts", form("nothing here"), {400}},
      {"form without a name", form("--b\r\n\r\nx\r\n--b--"), {400}},
      {"form with LF", form("--b\nContent-Disposition: form-data; name=a\n\nx\n--b--"), {400}},
      {"part climbing", form("--b\r\nContent-Disposition: form-data; name=a; filename=\"../../x\"\r\n\r\nx\r\n--b--"), {200}},
      {"form with too many parts",
       form([] {
         std::string parts;
         for (int i = 0; i < 100; ++i) parts += "--b\r\nContent-Disposition: form-data; name=a\r\n\r\nx\r\n";
         return parts + "--b--";
       }()),
       {400}},
  };
  return all;
}

ListenOptions short_options() {
  ListenOptions options;
  options.byte_timeout = std::chrono::seconds(1);
  options.part_in_memory = 1000;
  return options;
}

TEST(ListenerHostile, EveryRequestGetsAStatusOrAnEnd) {
  TestServer server([](const Exchange& exchange) { exchange.respond(HttpResponse::json("handled")); }, short_options());
  for (const Hostile& hostile : hostile_requests()) {
    RawClient client(server.port());
    client.send(hostile.bytes);
    const auto answer = client.answer();
    EXPECT_TRUE(hostile.statuses.contains(answer.status)) << hostile.name << ": " << answer.status << " " << answer.body;
    if (answer.status >= 400) {
      EXPECT_EQ(answer.header("x-request-id").substr(0, 4), "req_") << hostile.name;
      EXPECT_EQ(answer.header("connection"), "close") << hostile.name;
    }
    RawClient honest(server.port());
    honest.send(get("/"));
    ASSERT_EQ(honest.answer().status, 200) << "after " << hostile.name;
  }
  EXPECT_EQ(server.files(), 0u);
  EXPECT_TRUE(eventually([&] { return server.listener.counts().connections == 0; }));
}

TEST(ListenerHostile, ClientsThatLeaveAtEveryByte) {
  std::atomic<int> handled{0};
  TestServer server([&](const Exchange& exchange) { ++handled, exchange.respond(HttpResponse::json(std::string(100000, 'x'))); },
                    short_options());
  const std::string request =
      form("--b\r\nContent-Disposition: form-data; name=a; filename=x\r\n\r\n" + std::string(3000, 'x') + "\r\n--b--");
  for (size_t size = 0; size <= request.size(); size += size < 300 ? 7 : 501) {
    RawClient client(server.port());
    client.send(std::string_view(request).substr(0, size));
    if (size % 2 == 0) client.reset();
  }
  { RawClient(server.port()).send(request); }
  EXPECT_TRUE(eventually([&] { return server.listener.counts().connections == 0; }));
  EXPECT_TRUE(eventually([&] { return server.files() == 0; })) << "unfinished uploads are deleted";
}

TEST(ListenerHostile, ASlowHeadEndsAsAWhole) {
  TestServer server([](const Exchange& exchange) { exchange.respond(HttpResponse::empty()); }, short_options());
  RawClient client(server.port());
  const std::string head = get("/", "X: " + std::string(1000, 'x') + "\r\n");
  const auto begin = std::chrono::steady_clock::now();
  bool sent = true;
  for (size_t i = 0; sent && i < head.size(); ++i) {
    sent = client.send(head.substr(i, 1));
    client.wait = std::chrono::milliseconds(200);
    if (client.read(1) == "H") break;  // of the answer 408
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60)) << "sending all of it takes 200 s";
}

TEST(ListenerHostile, DamagedRequestsNeverReachTheHandlerHalfRead) {
  TestServer server([](const Exchange& exchange) { exchange.respond(HttpResponse::json(exchange.request().body)); },
                    short_options());
  const std::string good =
      "POST /api/v1/jobs?a=b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
      "7\r\n{\"a\":1}\r\n0\r\n\r\n";
  std::mt19937 random(7);
  int answered = 0;
  for (int i = 0; i < 600; ++i) {
    std::string bytes = good;
    for (int j = 0; j < 1 + i % 3; ++j) {
      const size_t at = random() % bytes.size();
      switch (random() % 3) {
        case 0: bytes[at] = static_cast<char>(random()); break;
        case 1: bytes.erase(at, 1 + random() % 4); break;
        default: bytes.insert(at, 1 + random() % 3, static_cast<char>(random())); break;
      }
    }
    RawClient client(server.port());
    client.send(bytes);
    client.end_sending();
    const auto answer = client.answer();
    answered += answer.status != 0;
    if (answer.status == 200) EXPECT_LE(answer.body.size(), 60u);
    else EXPECT_TRUE(answer.status == 0 || (answer.status >= 400 && answer.status < 600)) << answer.status;
  }
  EXPECT_GT(answered, 100);
  RawClient honest(server.port());
  honest.send(get("/"));
  EXPECT_EQ(honest.answer().status, 200);
}

}  // namespace
}  // namespace flux2
