#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace flux2 {

// Stands between a client and PostgreSQL and can cut the connection at a COMMIT: before the server has it, or before the client
// has its answer.
class TestProxy {
 public:
  enum class Cut { Never, BeforeCommit, AfterCommit };

  // Listens in `folder`; the server's socket is in `server`.
  TestProxy(const std::filesystem::path& folder, std::filesystem::path server)
      : server_(std::move(server)), listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_un name = name_in(folder);
    if (::bind(listener_, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0 || ::listen(listener_, 16) != 0)
      throw std::runtime_error("the proxy cannot listen");
    accepting_ = std::jthread([this](const std::stop_token& stop) { accept(stop); });
  }
  ~TestProxy() {
    stopping_ = true;
    accepting_ = {};
    carrying_.clear();
    ::close(listener_);
  }

  void cut_next(Cut cut) { cut_ = cut; }
  bool has_cut() const { return cut_ == Cut::Never; }

 private:
  static sockaddr_un name_in(const std::filesystem::path& folder) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strncpy(name.sun_path, (folder / ".s.PGSQL.5432").c_str(), sizeof name.sun_path - 1);
    return name;
  }

  void accept(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      pollfd waiting{listener_, POLLIN, 0};
      if (::poll(&waiting, 1, 50) <= 0) continue;
      const int client = ::accept(listener_, nullptr, nullptr);
      const int server = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const sockaddr_un name = name_in(server_);
      if (client < 0 || ::connect(server, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) {
        ::close(client), ::close(server);
        continue;
      }
      carrying_.emplace_back([this, client, server] {
        carry(client, server);
        ::close(client), ::close(server);
      });
    }
  }

  void carry(int client, int server) {
    std::array<char, 65536> buffer{};
    bool swallow = false;
    while (!stopping_) {
      std::array<pollfd, 2> ready = {{{client, POLLIN, 0}, {server, POLLIN, 0}}};
      if (::poll(ready.data(), 2, 50) <= 0) continue;
      for (size_t side = 0; side < 2; ++side) {
        if (ready[side].revents == 0) continue;
        const ssize_t size = ::read(ready[side].fd, buffer.data(), buffer.size());
        if (size <= 0) return;
        const std::string_view bytes(buffer.data(), static_cast<size_t>(size));
        if (side == 1 && swallow) return;  // the server has committed; nobody hears of it
        if (side == 0 && bytes.find("COMMIT") != std::string_view::npos && bytes.find("BEGIN") == std::string_view::npos) {
          const Cut cut = cut_.exchange(Cut::Never);
          if (cut == Cut::BeforeCommit) return;
          swallow = cut == Cut::AfterCommit;
        }
        if (::write(ready[1 - side].fd, buffer.data(), static_cast<size_t>(size)) != size) return;
      }
    }
  }

  std::filesystem::path server_;
  int listener_;
  std::atomic<Cut> cut_ = Cut::Never;
  std::atomic<bool> stopping_ = false;
  std::vector<std::jthread> carrying_;
  std::jthread accepting_;
};

}  // namespace flux2
