#include "train/ranks/tcp_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses resolve(const std::string& address, int port, int flags) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags;
  addrinfo* found = nullptr;
  const int failure = ::getaddrinfo(address.empty() ? nullptr : address.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (failure != 0)
    throw Error(ErrorCode::Network, fmt::format("the address {} is not known: {}", printable(address), ::gai_strerror(failure)),
                "check the environment variable MASTER_ADDR");
  return {found, &::freeaddrinfo};
}

TcpSocket open_socket(const addrinfo& a) {
  return TcpSocket(::socket(a.ai_family, a.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a.ai_protocol));
}

void send_at_once(const TcpSocket& socket) {
  const int on = 1;
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

int wait_for(int fd, short events, SteadyTime until) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    pollfd waiting{fd, events, 0};
    const int n = ::poll(&waiting, 1, static_cast<int>(std::clamp<int64_t>(left + 1, 0, 60'000)));
    if (n > 0) return waiting.revents;
    if (n < 0 && errno != EINTR) return 0;
    if (std::chrono::steady_clock::now() >= until) return 0;
  }
}

// 0, or why the connection was not made.
int try_connect(const addrinfo& a, TcpSocket& socket, SteadyTime until) {
  socket = open_socket(a);
  if (!socket.is_open()) return errno;
  if (::connect(socket.fd(), a.ai_addr, a.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (wait_for(socket.fd(), POLLOUT, until) == 0) return ETIMEDOUT;
  int reason = 0;
  socklen_t size = sizeof reason;
  ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &reason, &size);
  return reason;
}

std::string numeric(const sockaddr_storage& address, socklen_t size) {
  char host[NI_MAXHOST] = "";
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

}  // namespace

TcpSocket& TcpSocket::operator=(TcpSocket&& other) noexcept {
  if (this == &other) return *this;
  close();
  fd_ = other.release();
  return *this;
}

TcpSocket::~TcpSocket() { close(); }

int TcpSocket::release() { return std::exchange(fd_, -1); }

void TcpSocket::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void TcpSocket::stop() const { ::shutdown(fd_, SHUT_RDWR); }
void TcpSocket::stop_sending() const { ::shutdown(fd_, SHUT_WR); }

std::optional<size_t> TcpSocket::send_some(std::span<const std::byte> bytes) const {
  const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (n >= 0) return static_cast<size_t>(n);
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? std::optional<size_t>(0) : std::nullopt;
}

std::optional<size_t> TcpSocket::receive_some(std::span<std::byte> bytes) const {
  const ssize_t n = ::recv(fd_, bytes.data(), bytes.size(), 0);
  if (n > 0) return static_cast<size_t>(n);
  if (n == 0) return std::nullopt;
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? std::optional<size_t>(0) : std::nullopt;
}

bool TcpSocket::send_all(std::span<const std::byte> bytes, SteadyTime until) const {
  while (!bytes.empty()) {
    const auto n = send_some(bytes);
    if (!n) return false;
    if (*n == 0 && wait_for(fd_, POLLOUT, until) == 0) return false;
    bytes = bytes.subspan(*n);
  }
  return true;
}

bool TcpSocket::receive_all(std::span<std::byte> bytes, SteadyTime until) const {
  while (!bytes.empty()) {
    const auto n = receive_some(bytes);
    if (!n) return false;
    if (*n == 0 && wait_for(fd_, POLLIN, until) == 0) return false;
    bytes = bytes.subspan(*n);
  }
  return true;
}

std::string TcpSocket::peer_address() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  return ::getpeername(fd_, reinterpret_cast<sockaddr*>(&address), &size) == 0 ? numeric(address, size) : "";
}

std::string TcpSocket::local_address() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  return ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) == 0 ? numeric(address, size) : "";
}

int TcpSocket::local_port() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

TcpSocket listen_at(const std::string& address, int port) {
  const Addresses found = resolve(address, port, AI_PASSIVE);
  int reason = 0;
  for (const addrinfo* a = found.get(); a != nullptr; a = a->ai_next) {
    TcpSocket socket = open_socket(*a);
    const int on = 1;
    if (socket.is_open()) ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (socket.is_open() && ::bind(socket.fd(), a->ai_addr, a->ai_addrlen) == 0 && ::listen(socket.fd(), SOMAXCONN) == 0)
      return socket;
    reason = errno;
  }
  if (reason == EADDRINUSE)
    throw Error(ErrorCode::Network, fmt::format("port {} of {} is in use", port, printable(address)),
                "end the other run, or set the environment variable MASTER_PORT to another port for all ranks");
  if (reason == EADDRNOTAVAIL)
    throw Error(ErrorCode::Network,
                fmt::format("{} is not an address of this machine, but rank 0 must listen there", printable(address)),
                "start rank 0 on the machine that MASTER_ADDR names");
  fail(ErrorCode::Network, "cannot listen at port {} of {}: {}", port, printable(address), std::strerror(reason));
}

TcpSocket accept_from(const TcpSocket& listener) {
  TcpSocket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.is_open()) send_at_once(socket);
  return socket;
}

TcpSocket connect_to(const std::string& address, int port, const std::string& who, SteadyTime until) {
  const auto begun = std::chrono::steady_clock::now();
  for (int reason = ETIMEDOUT;;) {
    const Addresses found = resolve(address, port, 0);
    for (const addrinfo* a = found.get(); a != nullptr; a = a->ai_next) {
      TcpSocket socket;
      reason = try_connect(*a, socket, until);
      if (reason != 0) continue;
      send_at_once(socket);
      return socket;
    }
    const auto now = std::chrono::steady_clock::now();
    if (now + std::chrono::milliseconds(50) >= until)
      throw Error(ErrorCode::Network,
                  fmt::format("{} cannot be reached at port {} of {} after {:.0f} s: {}", who, port, printable(address),
                              std::chrono::duration<double>(now - begun).count(), std::strerror(reason)),
                  "check that all ranks were started, and that MASTER_ADDR and MASTER_PORT are the same for all");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

bool wait_readable(const TcpSocket& socket, SteadyTime until) { return wait_for(socket.fd(), POLLIN, until) != 0; }

}  // namespace flux2
