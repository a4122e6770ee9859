// Event streams, WebSockets and TLS over real connections.
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "server/http/errors.h"
#include "server/http/listener.h"
#include "server/http/test_client.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using test::eventually;
using test::get;
using test::RawClient;
using test::TestServer;
using Keep = EventStream::Keep;

// A server whose every request becomes a stream that the test holds.
struct StreamServer {
  std::mutex mutex;
  std::vector<EventStream> streams;
  std::atomic<int> closed{0};
  TestServer server;

  explicit StreamServer(ListenOptions options = {})
      : server(
            [this](const Exchange& exchange) {
              EventStream stream = exchange.stream({{"x-kind", "events"}});
              stream.on_closed([this] { ++closed; });
              const std::lock_guard lock(mutex);
              streams.push_back(std::move(stream));
            },
            std::move(options)) {}
  ~StreamServer() { server.listener.stop(std::chrono::milliseconds(0)); }

  size_t count() {
    const std::lock_guard lock(mutex);
    return streams.size();
  }
};

TEST(ListenerStream, SendsEventsInChunks) {
  StreamServer s;
  RawClient client(s.server.port());
  client.send(get("/events"));
  ASSERT_TRUE(eventually([&] { return s.count() == 1; }));
  EXPECT_TRUE(eventually([&] { return s.server.listener.counts().streams == 1; }));
  EXPECT_TRUE(s.streams[0].event(1, "hello", "{}"));
  EXPECT_TRUE(s.streams[0].event(2, "image", std::string(3 << 20, 'x')));
  EXPECT_TRUE(s.streams[0].event(3, "image", std::string(3 << 20, 'y'))) << "finished images may wait";
  s.streams[0].close();
  EXPECT_FALSE(s.streams[0].event(4, "late", ""));
  const auto answer = client.answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.header("content-type"), "text/event-stream");
  EXPECT_EQ(answer.header("cache-control"), "no-store");
  EXPECT_EQ(answer.header("x-kind"), "events");
  EXPECT_EQ(answer.header("x-request-id").substr(0, 4), "req_");
  EXPECT_TRUE(answer.body.starts_with("id: 1\nevent: hello\ndata: {}\n\nid: 2\nevent: image\ndata: xxx"));
  EXPECT_TRUE(answer.body.ends_with("yyy\n\n"));
  EXPECT_TRUE(client.is_closed());
  client.close();
  EXPECT_TRUE(eventually([&] { return s.closed == 1; }));
  EXPECT_EQ(s.server.listener.counts().streams, 0);
}

TEST(ListenerStream, OldClientsAndHeadGetNoChunks) {
  StreamServer s;
  RawClient old(s.server.port()), head(s.server.port());
  old.send("GET /events HTTP/1.0\r\n\r\n");
  head.send("HEAD /events HTTP/1.1\r\nHost: h\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return s.count() == 2; }));
  for (const EventStream& stream : s.streams) {
    stream.event(1, "", "x");
    stream.close();
  }
  EXPECT_TRUE(old.rest().ends_with("\r\n\r\nid: 1\ndata: x\n\n"));
  EXPECT_TRUE(head.rest().ends_with("\r\n\r\n"));
}

TEST(ListenerStream, NoticesWhenTheClientLeaves) {
  StreamServer s;
  {
    RawClient client(s.server.port());
    client.send(get("/events"));
    ASSERT_TRUE(eventually([&] { return s.count() == 1; }));
    client.read_until("\r\n\r\n");
  }
  EXPECT_TRUE(eventually([&] { return s.closed == 1; }));
  EXPECT_FALSE(s.streams[0].event(1, "a", "b"));
  int late = 0;
  s.streams[0].on_closed([&] { ++late; });
  EXPECT_EQ(late, 1);
}

TEST(ListenerStream, ASlowReaderLosesProgressThenItsConnection) {
  StreamServer s;
  RawClient client(s.server.port(), 4096);
  client.send(get("/events"));
  ASSERT_TRUE(eventually([&] { return s.count() == 1; }));
  const EventStream stream = s.streams[0];
  const std::string data(16 << 10, 'p');
  for (int i = 0; i < 4000; ++i)
    ASSERT_TRUE(stream.event(0, "progress", data, Keep::IfRoom)) << "progress is dropped, never fatal";
  EXPECT_EQ(s.closed, 0);
  bool open = true;
  int sent = 0;
  for (; open && sent < 4000; ++sent) open = stream.event(sent + 1, "state", data);
  EXPECT_FALSE(open);
  EXPECT_LT(sent, 300);
  EXPECT_TRUE(eventually([&] { return s.closed == 1; }));
  EXPECT_TRUE(client.is_closed());
}

TEST(ListenerStream, StopClosesStreams) {
  StreamServer s;
  RawClient client(s.server.port());
  client.send(get("/events"));
  ASSERT_TRUE(eventually([&] { return s.count() == 1; }));
  s.streams[0].event(9, "last", "x");
  std::thread stopping([&] { s.server.listener.stop(std::chrono::seconds(5)); });
  EXPECT_EQ(client.answer().body, "id: 9\nevent: last\ndata: x\n\n");
  client.close();
  stopping.join();
  EXPECT_EQ(s.closed, 1);
}

int64_t status_value(const std::string& name) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1));
  return 0;
}

TEST(ListenerStream, IdleStreamsCostNoThreadAndLittleMemory) {
  StreamServer s;
  rlimit limit{};  // the listener has raised it as far as it may; both ends of each connection are files of this process
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const size_t streams = std::min<size_t>(2000, (limit.rlim_cur - 100) / 2);
  std::vector<std::unique_ptr<RawClient>> clients;
  const int64_t threads = status_value("Threads"), kib = status_value("VmRSS");
  for (size_t i = 0; i < streams; ++i) {
    clients.push_back(std::make_unique<RawClient>(s.server.port()));
    clients.back()->send(get("/events"));
  }
  ASSERT_TRUE(
      eventually([&] { return s.count() == streams && s.server.listener.counts().streams == static_cast<int64_t>(streams); },
                 std::chrono::seconds(30)));
  EXPECT_EQ(status_value("Threads"), threads);
  const int64_t grown = status_value("VmRSS") - kib;
  EXPECT_LT(grown, static_cast<int64_t>(streams) * 64);
  RecordProperty("kib_per_stream", std::to_string(static_cast<double>(grown) / static_cast<double>(streams)));
  RawClient other(s.server.port());  // nothing starves
  other.send(get("/one-more"));
  EXPECT_EQ(other.read_until("\r\n").substr(0, 15), "HTTP/1.1 200 OK");
  for (const EventStream& stream : s.streams) stream.event(1, "to-all", "x");
  for (const auto& client : clients) EXPECT_NE(client->read_until("data: x\n\n"), "");
}

std::string masked(int first, const std::string& content) {
  std::string out{static_cast<char>(first), static_cast<char>(0x80 | content.size())};
  return out + std::string(4, '\0') + content;
}

TEST(ListenerWebSocket, SendsTextsAnswersPingsAndCloses) {
  std::shared_ptr<EventStream::Channel> channel;
  std::mutex mutex;
  std::atomic<int> closed{0};
  TestServer server(
      [](const Exchange& exchange) {
        exchange.respond(HttpResponse::json({{"plain", true}}));
      },
      {}, {},
      [&](const ServerRequest& head, std::shared_ptr<EventStream::Channel> opened) {
        if (head.path != "/ws/1") throw HttpError(404, "not_found", "no such token");
        opened->on_closed([&] { ++closed; });
        opened->send("{\"status\":\"queued\"}", Keep::Always);
        const std::lock_guard lock(mutex);
        channel = std::move(opened);
      });
  const std::string upgrade =
      "Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
      "dGhlIHNhbXBsZSBub25jZQ==\r\n";
  RawClient client(server.port());
  client.send(get("/ws/1", upgrade));
  const auto answer = client.answer();
  ASSERT_EQ(answer.status, 101);
  EXPECT_EQ(answer.header("sec-websocket-accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
  EXPECT_EQ(client.read(21), "\x81\x13{\"status\":\"queued\"}");
  client.send(masked(0x89, "are you there"));
  EXPECT_EQ(client.read(15),
            "\x8a\x0d"
            "are you there");
  client.send(masked(0x81, "ignored"));
  channel->send("second", Keep::Always);
  EXPECT_EQ(client.read(8),
            "\x81\x06"
            "second");
  client.send(masked(0x88, "\x03\xe8"));
  EXPECT_EQ(client.read(4), "\x88\x02\x03\xe8");
  EXPECT_TRUE(client.is_closed());
  client.close();
  EXPECT_TRUE(eventually([&] { return closed == 1; }));
  EXPECT_FALSE(channel->send("late", Keep::Always));

  RawClient refused(server.port());
  refused.send(get("/ws/2", upgrade) + get("/ws/1"));
  EXPECT_EQ(refused.answer().status, 404);
  EXPECT_EQ(refused.answer().body, R"({"plain":true})") << "without the headers it is a plain request";

  RawClient broken(server.port());
  broken.send(get("/ws/1", upgrade) + "\x81\x01x");  // not masked
  EXPECT_EQ(broken.answer().status, 101);
  EXPECT_TRUE(broken.rest().ends_with("\x88\x02\x03\xea"));

  RawClient closed_by_us(server.port());
  closed_by_us.send(get("/ws/1", upgrade));
  EXPECT_EQ(closed_by_us.answer().status, 101);
  closed_by_us.read(21);
  channel->close();
  EXPECT_EQ(closed_by_us.read(4), "\x88\x02\x03\xe8");
}

// A key and a certificate for localhost, signed by itself.
void write_certificate(const fs::path& certificate, const fs::path& key_file) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* x509 = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(x509), 1);
  X509_gmtime_adj(X509_getm_notBefore(x509), -60);
  X509_gmtime_adj(X509_getm_notAfter(x509), 3600);
  X509_set_pubkey(x509, key);
  X509_NAME* name = X509_get_subject_name(x509);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(x509, name);
  X509_sign(x509, key, EVP_sha256());
  FILE* out = std::fopen(certificate.c_str(), "w");
  PEM_write_X509(out, x509);
  std::fclose(out);
  out = std::fopen(key_file.c_str(), "w");
  PEM_write_PrivateKey(out, key, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(out);
  X509_free(x509);
  EVP_PKEY_free(key);
}

TEST(ListenerTls, ServesOverTls) {
  const fs::path folder = fs::path(testing::TempDir()) / "flux2_tls";
  fs::create_directories(folder);
  ListenOptions options;
  options.tls_certificate = folder / "cert.pem";
  options.tls_key = folder / "key.pem";
  write_certificate(options.tls_certificate, options.tls_key);
  TestServer server([](const Exchange& exchange) { exchange.respond(HttpResponse::json(exchange.request().path)); }, options);
  EXPECT_TRUE(server.listener.url().starts_with("https://127.0.0.1:"));

  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  BIO* bio = BIO_new_ssl_connect(context);
  BIO_set_conn_hostname(bio, ("127.0.0.1:" + std::to_string(server.port())).c_str());
  for (int i = 0; i < 3; ++i) {
    const std::string request = get("/secure" + std::to_string(i));
    ASSERT_EQ(BIO_write(bio, request.data(), static_cast<int>(request.size())), static_cast<int>(request.size()));
    std::string answer;
    char bytes[4096];
    while (answer.find("/secure" + std::to_string(i)) == answer.npos) {
      const int n = BIO_read(bio, bytes, sizeof bytes);
      ASSERT_GT(n, 0);
      answer.append(bytes, static_cast<size_t>(n));
    }
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK")) << answer;
  }
  BIO_free_all(bio);
  SSL_CTX_free(context);

  RawClient plain(server.port());
  plain.send(get("/"));
  EXPECT_TRUE(plain.is_closed()) << "plain text to a TLS port";
  EXPECT_TRUE(eventually([&] { return server.listener.counts().connections == 0; }));
}

TEST(ListenerTls, NamesAFileThatCannotBeUsed) {
  ListenOptions options;
  options.tls_certificate = "/nowhere/cert.pem";
  options.tls_key = "/nowhere/key.pem";
  try {
    TestServer server([](const Exchange&) {}, options);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("/nowhere/cert.pem"), std::string::npos);
  }
}

}  // namespace
}  // namespace flux2
