#include "tests/support/http_server.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <list>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace flux2::test {

namespace {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool send_all(int socket, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = ::send(socket, data, size, MSG_NOSIGNAL);
    if (n <= 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

ServedRequest parse_head(const std::string& head) {
  ServedRequest r;
  const size_t line_end = head.find("\r\n");
  const std::string line = head.substr(0, line_end);
  const size_t a = line.find(' '), b = line.rfind(' ');
  r.method = line.substr(0, a);
  r.target = line.substr(a + 1, b - a - 1);
  for (size_t at = line_end + 2; at < head.size();) {
    const size_t end = std::min(head.find("\r\n", at), head.size());
    const std::string field = head.substr(at, end - at);
    if (const size_t colon = field.find(':'); colon != field.npos) {
      const size_t value = field.find_first_not_of(' ', colon + 1);
      r.headers[lower(field.substr(0, colon))] = value == field.npos ? "" : field.substr(value);
    }
    at = end + 2;
  }
  return r;
}

}  // namespace

std::string ServedRequest::header(const std::string& name) const {
  const auto found = headers.find(lower(name));
  return found == headers.end() ? std::string() : found->second;
}

std::optional<std::pair<uint64_t, std::optional<uint64_t>>> ServedRequest::range() const {
  const std::string text = header("range");
  if (!text.starts_with("bytes=")) return std::nullopt;
  const size_t dash = text.find('-');
  const std::string last = text.substr(dash + 1);
  return std::pair{std::stoull(text.substr(6)), last.empty() ? std::nullopt : std::optional<uint64_t>(std::stoull(last))};
}

struct HttpServer::State {
  Handler handler;
  int listener = -1, port = 0;
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> sent = 0;
  mutable std::mutex mutex;
  std::vector<ServedRequest> requests;
  std::list<int> open;
  std::vector<std::jthread> connections;
  std::jthread acceptor;

  void accept_all() {
    while (!stop) {
      const int socket = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket < 0) break;
      const int one = 1;
      ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      const std::lock_guard lock(mutex);
      open.push_back(socket);
      connections.emplace_back([this, socket] { serve(socket); });
    }
  }

  void serve(int socket) {
    std::string buffer;
    while (!stop && answer_one(socket, buffer)) {}
    const std::lock_guard lock(mutex);
    open.remove(socket);
    ::close(socket);
  }

  bool more(int socket, std::string& buffer) {
    char piece[16384];
    const ssize_t n = ::recv(socket, piece, sizeof piece, 0);
    if (n > 0) buffer.append(piece, static_cast<size_t>(n));
    return n > 0;
  }

  bool answer_one(int socket, std::string& buffer) {
    size_t end;
    while ((end = buffer.find("\r\n\r\n")) == buffer.npos)
      if (!more(socket, buffer)) return false;
    ServedRequest request = parse_head(buffer.substr(0, end + 2));
    buffer.erase(0, end + 4);
    const std::string length = request.header("content-length");
    const size_t body = length.empty() ? 0 : std::stoul(length);
    while (buffer.size() < body)
      if (!more(socket, buffer)) return false;
    request.body = buffer.substr(0, body);
    buffer.erase(0, body);
    {
      const std::lock_guard lock(mutex);
      requests.push_back(request);
    }
    return send_reply(socket, request, handler(request));
  }

  bool send_reply(int socket, const ServedRequest& request, const Reply& reply) {
    nap(reply.wait_s);
    std::string head = fmt::format("HTTP/1.1 {} Test\r\n", reply.status);
    bool has_length = !reply.content_length;
    for (const auto& [name, value] : reply.headers) {
      head += fmt::format("{}: {}\r\n", name, value);
      has_length |= lower(name) == "content-length";
    }
    if (!has_length) head += fmt::format("Content-Length: {}\r\n", reply.body.size());
    if (!reply.content_length) head += "Connection: close\r\n";
    head += "\r\n";
    if (!send_all(socket, head.data(), head.size())) return false;
    if (request.method == "HEAD") return true;
    const uint64_t size = std::min<uint64_t>(reply.body.size(), reply.drop_after.value_or(UINT64_MAX));
    const size_t piece = reply.bytes_per_s > 0 ? 16 << 10 : 1 << 20;
    for (uint64_t at = 0; at < size && !stop;) {
      const size_t n = std::min<uint64_t>(piece, size - at);
      if (!send_all(socket, reply.body.data() + at, n)) return false;
      at += n;
      sent += n;
      if (reply.bytes_per_s > 0) nap(static_cast<double>(n) / reply.bytes_per_s);
    }
    return !reply.drop_after && reply.content_length;
  }

  void nap(double seconds) const {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!stop && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(
          std::min<std::chrono::duration<double>>(std::chrono::milliseconds(20), until - std::chrono::steady_clock::now()));
  }
};

HttpServer::HttpServer(Handler handler) : state_(std::make_unique<State>()) {
  state_->handler = std::move(handler);
  state_->listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(state_->listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(state_->listener, 64) != 0 ||
      ::getsockname(state_->listener, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw std::runtime_error("the test server cannot listen");
  state_->port = ntohs(address.sin_port);
  state_->acceptor = std::jthread([this] { state_->accept_all(); });
}

HttpServer::~HttpServer() {
  state_->stop = true;
  ::shutdown(state_->listener, SHUT_RDWR);
  state_->acceptor.join();
  ::close(state_->listener);
  {
    const std::lock_guard lock(state_->mutex);
    for (const int socket : state_->open) ::shutdown(socket, SHUT_RDWR);
  }
  for (std::jthread& connection : state_->connections) connection.join();
}

int HttpServer::port() const { return state_->port; }
std::string HttpServer::url() const { return fmt::format("http://127.0.0.1:{}", state_->port); }

std::vector<ServedRequest> HttpServer::requests() const {
  const std::lock_guard lock(state_->mutex);
  return state_->requests;
}

uint64_t HttpServer::body_bytes_sent() const { return state_->sent; }

void HttpServer::forget() {
  const std::lock_guard lock(state_->mutex);
  state_->requests.clear();
  state_->sent = 0;
}

}  // namespace flux2::test
