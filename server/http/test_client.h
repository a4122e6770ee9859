#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "server/http/listener.h"

namespace flux2::test {

// A client that sends exactly the bytes it is told to. For tests.
class RawClient {
 public:
  struct Answer {
    int status = 0;  // 0: the connection ended first
    std::vector<std::pair<std::string, std::string>> headers;
    std::string body;
    std::string header(const std::string& name) const;
  };

  explicit RawClient(int port, int receive_buffer = 0);
  explicit RawClient(const std::filesystem::path& socket);
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;
  ~RawClient() { close(); }

  bool send(std::string_view bytes);
  void end_sending();
  void close();
  void reset();  // closes so that the other side gets an error

  // All wait at most `wait`.
  Answer answer(bool of_head = false);  // the next one, by its length or chunks
  std::string read(size_t bytes);       // fewer if the connection ends or the time is over
  std::string read_until(const std::string& text);
  std::string rest();  // until the connection ends
  bool is_closed();    // by the other side, within the time

  std::chrono::milliseconds wait{5000};

 private:
  bool fill();  // false: end or out of time

  int fd_ = -1;
  bool ended_ = false;
  std::string input_;
};

std::string get(const std::string& target, const std::string& more_headers = {});  // a GET request as text

// A listener on a free port of this machine, with an empty folder for uploads.
struct TestServer {
  TestServer(HttpListener::Handle handle, ListenOptions options = {}, HttpListener::Admit admit = {},
             HttpListener::Accept accept = {});
  ~TestServer();

  int port() const { return listener.port(); }
  size_t files() const;  // of uploads

  std::filesystem::path folder;
  HttpListener listener;
};

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds time = std::chrono::seconds(5));

}  // namespace flux2::test
