#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace flux2 {

using SteadyTime = std::chrono::steady_clock::time_point;

// A TCP connection or listener. All sockets are non-blocking and closed on exec.
class TcpSocket {
 public:
  TcpSocket() = default;
  explicit TcpSocket(int fd) : fd_(fd) {}
  TcpSocket(TcpSocket&& other) noexcept : fd_(other.release()) {}
  TcpSocket& operator=(TcpSocket&& other) noexcept;
  ~TcpSocket();

  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release();
  void close();
  void stop() const;  // both directions: whoever waits for this socket wakes up
  void stop_sending() const;

  // Bytes moved, 0 if it would have to wait; empty if the connection has ended.
  std::optional<size_t> send_some(std::span<const std::byte> bytes) const;
  std::optional<size_t> receive_some(std::span<std::byte> bytes) const;

  // Everything, or false if the connection ends or the time is over.
  bool send_all(std::span<const std::byte> bytes, SteadyTime until) const;
  bool receive_all(std::span<std::byte> bytes, SteadyTime until) const;

  std::string peer_address() const;   // numeric, of the other side
  std::string local_address() const;  // numeric, of this side
  int local_port() const;

 private:
  int fd_ = -1;
};

// Listens at an address of this machine; port 0 chooses a free one. Throws Network: the port is in use, no such address.
TcpSocket listen_at(const std::string& address, int port);
TcpSocket accept_from(const TcpSocket& listener);  // not open if nobody waits

// Tries until it succeeds or the time is over; then throws Network with the last reason. `who` is in the message.
TcpSocket connect_to(const std::string& address, int port, const std::string& who, SteadyTime until);

bool wait_readable(const TcpSocket& socket, SteadyTime until);  // also true when the connection has ended

}  // namespace flux2
