#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace flux2::test {

struct ServedRequest {
  std::string method, target, body;
  std::map<std::string, std::string> headers;  // names in lower case

  std::string header(const std::string& name) const;  // empty when it was not sent
  // The bytes of "Range: bytes=first-last"; last is inclusive and absent for an open range.
  std::optional<std::pair<uint64_t, std::optional<uint64_t>>> range() const;
};

struct Reply {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
  std::optional<uint64_t> drop_after = {};  // the connection ends after so many bytes of the body
  double wait_s = 0;                        // before the first byte
  double bytes_per_s = 0;                   // 0: as fast as it goes
  bool content_length = true;               // false: the end of the connection is the end of the body
};

// A small HTTP/1.1 server on 127.0.0.1 that answers with what a function says and remembers what it was asked.
class HttpServer {
 public:
  using Handler = std::function<Reply(const ServedRequest&)>;

  explicit HttpServer(Handler handler);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();

  int port() const;
  std::string url() const;  // http://127.0.0.1:PORT
  std::vector<ServedRequest> requests() const;
  uint64_t body_bytes_sent() const;
  void forget();  // the requests so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace flux2::test
