#include "server/http/test_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "server/http/multipart_head.h"

namespace flux2::test {
namespace {

namespace fs = std::filesystem;

ListenOptions local_options(ListenOptions options, const fs::path& folder) {
  options.port = 0;
  if (options.upload_folder.empty()) options.upload_folder = folder;
  return options;
}

fs::path new_folder() {
  static std::atomic<int> next{0};
  const fs::path folder = fs::temp_directory_path() / ("flux2_http_" + std::to_string(::getpid()) + "_" + std::to_string(next++));
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

}  // namespace

std::string RawClient::Answer::header(const std::string& name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return {};
}

RawClient::RawClient(int port, int receive_buffer) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (receive_buffer > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw std::runtime_error(std::string("connect: ") + std::strerror(errno));
}

RawClient::RawClient(const fs::path& socket) : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket.c_str(), sizeof address.sun_path - 1);
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw std::runtime_error(std::string("connect: ") + std::strerror(errno));
}

bool RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

void RawClient::end_sending() { ::shutdown(fd_, SHUT_WR); }

void RawClient::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void RawClient::reset() {
  const linger at_once{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close();
}

bool RawClient::fill() {
  if (ended_) return false;
  pollfd waiting{fd_, POLLIN, 0};
  if (::poll(&waiting, 1, static_cast<int>(wait.count())) <= 0) return false;
  char bytes[65536];
  const ssize_t n = ::recv(fd_, bytes, sizeof bytes, 0);
  ended_ = n <= 0;
  if (n > 0) input_.append(bytes, static_cast<size_t>(n));
  return n > 0;
}

std::string RawClient::read(size_t bytes) {
  while (input_.size() < bytes && fill()) {}
  std::string out = input_.substr(0, bytes);
  input_.erase(0, out.size());
  return out;
}

std::string RawClient::read_until(const std::string& text) {
  while (input_.find(text) == input_.npos && fill()) {}
  const size_t at = input_.find(text);
  return read(at == input_.npos ? input_.size() : at + text.size());
}

std::string RawClient::rest() {
  while (fill()) {}
  return std::exchange(input_, {});
}

bool RawClient::is_closed() {
  rest();
  return ended_;
}

RawClient::Answer RawClient::answer(bool of_head) {
  Answer answer;
  const std::string head = read_until("\r\n\r\n");
  if (!head.starts_with("HTTP/1.1 ") || !head.ends_with("\r\n\r\n")) return answer;
  answer.status = std::stoi(head.substr(9, 3));
  for (size_t at = head.find("\r\n") + 2; at + 2 < head.size(); at = head.find("\r\n", at) + 2) {
    const std::string line = head.substr(at, head.find("\r\n", at) - at);
    answer.headers.emplace_back(line.substr(0, line.find(':')), line.substr(line.find(':') + 2));
  }
  if (of_head || answer.status < 200 || answer.status == 204 || answer.status == 304) return answer;
  if (answer.header("transfer-encoding") == "chunked") {
    while (true) {
      const std::string line = read_until("\r\n");
      const size_t size = line.empty() ? 0 : std::stoul(line, nullptr, 16);
      answer.body += read(size);
      read(2);
      if (size == 0) return answer;
    }
  }
  if (!answer.header("content-length").empty()) answer.body = read(std::stoul(answer.header("content-length")));
  else answer.body = rest();
  return answer;
}

std::string get(const std::string& target, const std::string& more_headers) {
  return "GET " + target + " HTTP/1.1\r\nHost: localhost\r\n" + more_headers + "\r\n";
}

TestServer::TestServer(HttpListener::Handle handle, ListenOptions options, HttpListener::Admit admit, HttpListener::Accept accept)
    : folder(new_folder()), listener(local_options(std::move(options), folder), std::move(admit), std::move(handle)) {
  if (accept) listener.on_websocket(std::move(accept));
  listener.start();
}

TestServer::~TestServer() {
  listener.stop(std::chrono::milliseconds(0));
  fs::remove_all(folder);
}

size_t TestServer::files() const {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace flux2::test
