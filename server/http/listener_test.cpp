#include "server/http/listener.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <future>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "server/http/errors.h"
#include "server/http/test_client.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using test::eventually;
using test::get;
using test::RawClient;
using test::TestServer;

// Tells what arrived.
HttpResponse echo(const ServerRequest& request) {
  Json parts = Json::array();
  for (const FormPart& part : request.parts)
    parts.push_back({{"name", part.name}, {"bytes", part.bytes}, {"in_file", !part.file.empty()}, {"data", part.data}});
  return HttpResponse::json({{"method", request.method},
                             {"path", request.path},
                             {"body", request.body},
                             {"address", request.remote_address},
                             {"parts", std::move(parts)}});
}

void answer_echo(const Exchange& exchange) { exchange.respond(echo(exchange.request())); }

Json json_of(const RawClient::Answer& answer) { return Json::parse(answer.body); }

TEST(Listener, KeepsConnectionsAndAnswersInOrder) {
  TestServer server(answer_echo);
  RawClient client(server.port());
  for (const char* path : {"/a", "/b%20c?d=e", "/f"}) {
    client.send(get(path));
    const auto answer = client.answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.header("content-type"), "application/json");
    EXPECT_EQ(answer.header("x-request-id").substr(0, 4), "req_");
    EXPECT_NE(answer.header("date"), "");
    EXPECT_EQ(json_of(answer)["address"], "127.0.0.1");
  }
  std::string many;  // pipelined
  for (int i = 0; i < 50; ++i) many += get("/" + std::to_string(i));
  client.send(many);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(json_of(client.answer())["path"], "/" + std::to_string(i));
  EXPECT_EQ(server.listener.counts().requests, 53);
  EXPECT_EQ(server.listener.counts().connections, 1);
}

TEST(Listener, ClosesWhenAsked) {
  TestServer server(answer_echo);
  for (const std::string& request : {get("/", "Connection: close\r\n"), std::string("GET / HTTP/1.0\r\n\r\n")}) {
    RawClient client(server.port());
    client.send(request);
    const auto answer = client.answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.header("connection"), "close");
    EXPECT_TRUE(client.is_closed());
  }
  RawClient old(server.port());
  old.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(old.answer().header("connection"), "keep-alive");
}

TEST(Listener, ReadsBodiesOfEveryKind) {
  TestServer server(answer_echo);
  RawClient client(server.port());
  client.send("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhel");
  client.send("lo");
  EXPECT_EQ(json_of(client.answer())["body"], "hello");
  client.send("POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\n");
  client.send("lo\r\n0\r\nTrailer: x\r\n\r\n" + get("/next"));
  EXPECT_EQ(json_of(client.answer())["body"], "hello");
  EXPECT_EQ(json_of(client.answer())["path"], "/next");

  client.send("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.answer().status, 100);
  client.send("yes");
  EXPECT_EQ(json_of(client.answer())["body"], "yes");

  const std::string large(700000, 'x');
  client.send("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 700000\r\n\r\n" + large);
  EXPECT_EQ(json_of(client.answer())["body"], large);
}

TEST(Listener, HeadHasTheHeadersOfGet) {
  TestServer server(answer_echo);
  RawClient client(server.port());
  client.send("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n" + get("/after"));
  const auto head = client.answer(true);
  EXPECT_EQ(head.status, 200);
  EXPECT_GT(std::stoi(head.header("content-length")), 10);
  EXPECT_EQ(json_of(client.answer())["path"], "/after");
}

TEST(Listener, ReadsFormsAndDeletesTheirFiles) {
  std::mutex mutex;
  std::vector<Exchange> kept;
  TestServer server(
      [&](const Exchange& exchange) {
        {
          const std::lock_guard lock(mutex);
          kept.push_back(exchange);
        }
        exchange.respond(echo(exchange.request()));
      },
      {}, [](const ServerRequest&) { return Admission{.body_limit = 8 << 20, .refusal = {}}; });
  RawClient client(server.port());
  const std::string image(1 << 20, 'i');
  const std::string form =
      "--XX\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\na fox\r\n--XX\r\nContent-Disposition: form-data; "
      "name=\"image\"; filename=\"a.png\"\r\n\r\n" +
      image + "\r\n--XX--\r\n";
  client.send("POST /edit HTTP/1.1\r\nHost: h\r\nContent-Type: multipart/form-data; boundary=XX\r\nContent-Length: " +
              std::to_string(form.size()) + "\r\n\r\n" + form);
  const auto answer = client.answer();
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json parts = json_of(answer)["parts"];
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0]["data"], "a fox");
  EXPECT_EQ(parts[1]["bytes"], 1 << 20);
  EXPECT_EQ(parts[1]["in_file"], true);
  EXPECT_EQ(server.files(), 1u) << "kept while the exchange is";
  {
    const std::lock_guard lock(mutex);
    kept.clear();
  }
  EXPECT_TRUE(eventually([&] { return server.files() == 0; }));
}

TEST(Listener, LimitsBodiesByAdmission) {
  std::atomic<int> handled{0};
  TestServer server([&](const Exchange& exchange) { ++handled, answer_echo(exchange); }, {},
                    [](const ServerRequest& head) {
                      Admission admission{.body_limit = 10, .refusal = {}};
                      if (head.path == "/v1/secret")
                        admission.refusal = error_response(Family::OpenAi, HttpError(401, "invalid_api_key", "no"), head.id);
                      return admission;
                    });
  {
    RawClient client(server.port());
    client.send("POST /v1/a HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n12345678901");
    const auto answer = client.answer();
    EXPECT_EQ(answer.status, 413);
    EXPECT_EQ(json_of(answer)["error"]["code"], "payload_too_large");
    EXPECT_TRUE(client.is_closed());
  }
  {
    RawClient client(server.port());
    client.send("POST /api/a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n123456\r\n6\r\n123456\r\n");
    EXPECT_EQ(client.answer().status, 413);
  }
  {
    RawClient client(server.port());  // told before it sends the body
    client.send("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 500000\r\nExpect: 100-continue\r\n\r\n");
    EXPECT_EQ(client.answer().status, 413);
  }
  EXPECT_EQ(handled, 0);
  RawClient client(server.port());
  client.send(get("/v1/secret") + get("/open"));
  EXPECT_EQ(client.answer().status, 401);
  EXPECT_EQ(client.answer().status, 200) << "a refused request without a body keeps the connection";
  // A large body that nobody reads: the client still gets the answer.
  client.send("POST /v1/secret HTTP/1.1\r\nHost: h\r\nContent-Length: 900000\r\n\r\n" + std::string(900000, 'x'));
  EXPECT_EQ(client.answer().status, 401);
}

TEST(Listener, FormsHaveALimitOfTheirOwn) {
  TestServer server(answer_echo, {},
                    [](const ServerRequest&) { return Admission{.body_limit = 100, .form_limit = 2000, .refusal = {}}; });
  const auto status_of = [&](const std::string& type, const std::string& body) {
    RawClient client(server.port());
    client.send("POST /api/a HTTP/1.1\r\nHost: h\r\nContent-Type: " + type +
                "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    return client.answer().status;
  };
  const auto form = [](size_t bytes) {
    return "--XX\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n" + std::string(bytes, 'x') + "\r\n--XX--\r\n";
  };
  EXPECT_EQ(status_of("multipart/form-data; boundary=XX", form(1000)), 200);
  EXPECT_EQ(status_of("multipart/form-data; boundary=XX", form(3000)), 413);
  EXPECT_EQ(status_of("application/octet-stream", std::string(1000, 'x')), 413) << "it would be held in memory";
  EXPECT_EQ(status_of("application/json", std::string(90, 'x')), 200);
}

TEST(Listener, HeadersOfAdmissionAreOnEveryAnswer) {
  TestServer server([](const Exchange& exchange) { exchange.respond(HttpResponse::empty()); }, {},
                    [](const ServerRequest& head) {
                      Admission admission;
                      admission.headers = {{"vary", "Origin"}};
                      if (head.path == "/refused") {
                        admission.refusal = HttpResponse::empty(204);
                        admission.refusal->headers = {{"vary", "Accept"}};
                      }
                      return admission;
                    });
  RawClient client(server.port());
  client.send(get("/") + get("/refused"));
  EXPECT_EQ(client.answer().header("vary"), "Origin");
  const auto refused = client.answer();
  EXPECT_EQ(refused.header("vary"), "Accept");
  EXPECT_EQ(std::ranges::count(refused.headers, "vary", [](const auto& h) { return h.first; }), 1);
}

TEST(Listener, TimesOut) {
  ListenOptions options;
  options.byte_timeout = std::chrono::seconds(1);
  TestServer server(answer_echo, options);
  RawClient idle(server.port()), head(server.port()), body(server.port()), waiting(server.port());
  head.send("GET / HT");
  body.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhel");
  EXPECT_EQ(head.answer().status, 408);
  EXPECT_EQ(body.answer().status, 408);
  EXPECT_TRUE(idle.is_closed());
  EXPECT_TRUE(eventually([&] { return server.listener.counts().connections == 0; }));
}

TEST(Listener, ErrorsHaveTheShapeOfTheirFamily) {
  TestServer server([](const Exchange& exchange) {
    const std::string& path = exchange.request().path;
    if (path.ends_with("error")) throw Error(ErrorCode::OutOfMemory, "too big");
    if (path.ends_with("http")) throw HttpError(404, "model_not_found", "no such model", "model");
    if (path.ends_with("other")) throw std::runtime_error("secret");
    // No answer: the last handle goes.
  });
  RawClient client(server.port());
  client.send(get("/v1/error") + get("/v1/http") + get("/api/other") + get("/sdapi/nothing") + get("/%zz"));
  auto answer = client.answer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.header("x-should-retry"), "false");
  answer = client.answer();
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(json_of(answer)["error"]["param"], "model");
  answer = client.answer();
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(answer.body.find("secret"), std::string::npos);
  EXPECT_EQ(json_of(answer)["error"]["request_id"], answer.header("x-request-id"));
  answer = client.answer();
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(json_of(answer)["detail"], "The server did not answer this request.");
  EXPECT_EQ(client.answer().status, 400);
}

TEST(Listener, TellsWhenAWaitingClientLeaves) {
  std::mutex mutex;
  std::vector<Exchange> waiting;
  std::atomic<int> left{0};
  TestServer server([&](const Exchange& exchange) {
    exchange.on_disconnect([&] { ++left; });
    const std::lock_guard lock(mutex);
    waiting.push_back(exchange);
  });
  const auto count = [&] {
    const std::lock_guard lock(mutex);
    return waiting.size();
  };
  RawClient closes(server.port()), resets(server.port()), stays(server.port());
  for (RawClient* client : {&closes, &resets, &stays}) client->send(get("/"));
  ASSERT_TRUE(eventually([&] { return count() == 3; }));
  EXPECT_EQ(left, 0);
  closes.close();
  EXPECT_TRUE(eventually([&] { return left == 1; }));
  resets.reset();
  EXPECT_TRUE(eventually([&] { return left == 2; }));
  for (const Exchange& exchange : waiting) {
    exchange.respond(HttpResponse::json({{"late", true}}));
    exchange.respond(HttpResponse::json({{"twice", true}}));
  }
  EXPECT_EQ(stays.answer().body, R"({"late":true})");
  stays.close();
  waiting.clear();
  EXPECT_TRUE(eventually([&] { return server.listener.counts().connections == 0; }));
  EXPECT_EQ(left, 2) << "who was answered did not leave early";
}

TEST(Listener, AnAnswerAfterTheListenerIsGoneIsDropped) {
  std::mutex mutex;
  std::vector<Exchange> kept;
  auto server = std::make_unique<TestServer>([&](const Exchange& exchange) {
    const std::lock_guard lock(mutex);
    kept.push_back(exchange);
  });
  RawClient client(server->port());
  client.send(get("/"));
  ASSERT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return kept.size() == 1;
  }));
  server.reset();
  kept[0].respond(HttpResponse::empty());
  EXPECT_FALSE(kept[0].stream().event(1, "a", "b"));
  EXPECT_TRUE(client.is_closed());
}

TEST(Listener, StopLetsAnswersFinish) {
  std::promise<void> entered;
  TestServer server([&](const Exchange& exchange) {
    entered.set_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    answer_echo(exchange);
  });
  RawClient client(server.port()), idle(server.port());
  client.send(get("/slow"));
  entered.get_future().wait();
  std::thread stopping([&] { server.listener.stop(std::chrono::seconds(5)); });
  const auto answer = client.answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.header("connection"), "close");
  EXPECT_TRUE(idle.is_closed());
  client.close();
  stopping.join();
  EXPECT_THROW(RawClient(server.port()), std::runtime_error);
}

TEST(Listener, SendsFilesWithRanges) {
  const fs::path path = fs::path(testing::TempDir()) / ("served_" + std::to_string(::getpid()));
  std::string content;
  for (int i = 0; i < 100000; ++i) content += std::to_string(i);
  std::ofstream(path, std::ios::binary) << content;
  TestServer server([&](const Exchange& exchange) {
    HttpResponse response;
    response.content_type = "image/png";
    response.file = exchange.request().path == "/missing" ? fs::path("/nowhere/x") : path;
    exchange.respond(std::move(response));
  });
  RawClient client(server.port());
  client.send(get("/") + get("/", "Range: bytes=1000-300999\r\n") + get("/missing"));
  const auto whole = client.answer();
  EXPECT_EQ(whole.body, content);
  const auto part = client.answer();
  EXPECT_EQ(part.status, 206);
  EXPECT_EQ(part.body, content.substr(1000, 300000));
  EXPECT_EQ(part.header("content-range"), "bytes 1000-300999/" + std::to_string(content.size()));
  EXPECT_EQ(client.answer().status, 404);
  client.send(get("/", "If-None-Match: " + whole.header("etag") + "\r\n") +
              get("/", "If-Range: \"old\"\r\nRange: bytes=0-1\r\n") + get("/", "Range: bytes=99999999-\r\n"));
  EXPECT_EQ(client.answer().status, 304);
  EXPECT_EQ(client.answer().body.size(), content.size());
  EXPECT_EQ(client.answer().status, 416);
  fs::remove(path);
}

TEST(Listener, ListensOnAUnixSocket) {
  ListenOptions options;
  options.socket = fs::temp_directory_path() / ("flux2_test_" + std::to_string(::getpid()) + ".sock");
  {
    TestServer server(answer_echo, options);
    EXPECT_EQ(fs::status(options.socket).permissions() & fs::perms::others_all, fs::perms::none);
    RawClient client(options.socket);
    client.send(get("/"));
    EXPECT_EQ(json_of(client.answer())["address"], "");
    EXPECT_THROW(TestServer(answer_echo, options), Error) << "somebody listens there";
    client.send(get("/"));
    EXPECT_EQ(client.answer().status, 200);
  }
  EXPECT_FALSE(fs::exists(options.socket));
}

TEST(Listener, NamesAnAddressInUse) {
  TestServer server(answer_echo);
  ListenOptions options;
  options.port = server.port();
  HttpListener second(options, {}, answer_echo);
  try {
    second.start();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::CannotWrite);
    EXPECT_NE(std::string(e.what()).find(std::to_string(server.port())), std::string::npos) << e.what();
  }
}

TEST(Listener, LimitsConnections) {
  ListenOptions options;
  options.connections = 5;
  TestServer server(answer_echo, options);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    clients.back()->send(get("/"));
    EXPECT_EQ(clients.back()->answer().status, 200);
  }
  RawClient sixth(server.port());
  EXPECT_EQ(sixth.answer().status, 503);
  clients.clear();
  EXPECT_TRUE(eventually([&] { return server.listener.counts().connections == 0; }));
  RawClient later(server.port());
  later.send(get("/"));
  EXPECT_EQ(later.answer().status, 200);
}

}  // namespace
}  // namespace flux2
