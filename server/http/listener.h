#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/log.h"
#include "server/http/exchange.h"

namespace flux2 {

// A request that was answered, for the log.
struct RequestLine {
  std::string id, method, path;     // the path without its query, which may contain a key
  std::string remote_address, key;  // the name of the key
  std::string job;                  // the job that the answer is about, "job_…"
  int status = 0;
  uint64_t bytes = 0;  // of the body; 0 for a stream, which is noted when it begins
  double milliseconds = 0;
  bool is_stream = false;
};

struct ListenOptions {
  std::string host = "127.0.0.1";
  int port = 8190;                                           // 0: any free port
  std::filesystem::path socket = {};                         // a Unix socket instead of a port
  std::filesystem::path tls_certificate = {}, tls_key = {};  // both or none
  std::filesystem::path upload_folder;                       // where large parts of forms go while they arrive
  int io_threads = 2;
  int handler_threads = 4;
  uint64_t header_bytes = 16 << 10;
  int parts = 64;
  uint64_t part_in_memory = 256 << 10;
  std::chrono::seconds byte_timeout{30};  // without a byte from a client that owes one, or of an idle connection
  size_t connections = 4096;
  std::function<void(const RequestLine&)> on_request = {};  // on an I/O thread
  Log log = {};
};

// What the listener asks about a request before it reads the body.
struct Admission {
  uint64_t body_limit = 1 << 20;        // of a body in memory
  uint64_t form_limit = 0;              // of a multipart form, whose large parts go to files; 0: body_limit
  std::optional<HttpResponse> refusal;  // answered instead, without reading the body
  Headers headers = {};                 // added to the answer, whatever it is, unless it has them: those of CORS
};

// The HTTP/1.1 server. Boost.Beast and Asio are seen by the sources of this folder only. A few I/O threads carry every
// connection; handlers run on a small pool.
class HttpListener {
 public:
  // Called on an I/O thread with the head of a request (no body yet); must be quick. May fill in what the path captured.
  using Admit = std::function<Admission(ServerRequest& head)>;
  // Called on a pool thread with the whole request.
  using Handle = std::function<void(const Exchange&)>;
  // Called on a pool thread for a WebSocket handshake that admit() let pass. What is sent through the channel arrives as text
  // frames; what the client sends is ignored. Refuse by throwing HttpError.
  using Accept = std::function<void(const ServerRequest& head, std::shared_ptr<EventStream::Channel> channel)>;

  static bool available();  // false: built without Boost, and start() throws

  HttpListener(ListenOptions options, Admit admit, Handle handle);
  ~HttpListener();  // stop(0)

  // Before start(). Without it, a WebSocket handshake is a request like any other.
  void on_websocket(Accept accept);

  void start();      // binds and listens; throws CannotWrite naming the address that is in use
  int port() const;  // the one chosen
  std::string url() const;
  // Stops accepting, lets answers under way finish for at most `grace`, closes event streams, joins all threads.
  void stop(std::chrono::milliseconds grace);

  struct Counts {
    int64_t connections = 0, streams = 0, requests = 0;
  };
  Counts counts() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace flux2
