#include "server/store/postgres_signals.h"

#include <libpq-fe.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

namespace flux2 {

namespace {

class PostgresSignals : public SqlSignals {
 public:
  explicit PostgresSignals(std::shared_ptr<PostgresPool> pool) : pool_(std::move(pool)), interrupt_(::eventfd(0, EFD_CLOEXEC)) {
    if (interrupt_ < 0) fail(ErrorCode::OutOfMemory, "the system has no more file descriptors");
  }
  PostgresSignals(const PostgresSignals&) = delete;
  PostgresSignals& operator=(const PostgresSignals&) = delete;
  ~PostgresSignals() override { ::close(interrupt_); }

  std::vector<SqlSignal> wait(std::chrono::milliseconds at_most) override {
    if (interrupted_) return {};
    try {
      if (!connection_) {
        connection_ = pool_->connect();
        connection_->run(std::string("LISTEN ") + PostgresConnection::kChannel);
        return {{kMissedSignal, ""}};
      }
      std::vector<SqlSignal> found = received();
      if (!found.empty()) return found;
      sleep(PQsocket(connection_->handle()), at_most);
      if (PQconsumeInput(connection_->handle()) == 0) {
        connection_.reset();
        return {};
      }
      return received();
    } catch (const Error&) {
      connection_.reset();
      sleep(-1, std::min(at_most, std::chrono::milliseconds(300)));
      return {};
    }
  }

  void interrupt() override {
    interrupted_ = true;
    const uint64_t one = 1;
    while (::write(interrupt_, &one, sizeof one) < 0 && errno == EINTR) {}
  }

 private:
  void sleep(int socket, std::chrono::milliseconds at_most) const {
    std::array<pollfd, 2> watched = {{{interrupt_, POLLIN, 0}, {socket, POLLIN, 0}}};
    ::poll(watched.data(), socket < 0 ? 1 : 2, static_cast<int>(at_most.count()));
  }

  // "ORIGIN KIND TEXT"; what this process has sent itself is left out.
  std::vector<SqlSignal> received() const {
    std::vector<SqlSignal> signals;
    while (PGnotify* notice = PQnotifies(connection_->handle())) {
      const std::string text = notice->extra;
      PQfreemem(notice);
      const size_t kind = text.find(' '), rest = kind == std::string::npos ? kind : text.find(' ', kind + 1);
      if (rest == std::string::npos || text.substr(0, kind) == pool_->origin()) continue;
      signals.push_back({text.substr(kind + 1, rest - kind - 1), text.substr(rest + 1)});
    }
    return signals;
  }

  std::shared_ptr<PostgresPool> pool_;
  std::unique_ptr<PostgresConnection> connection_;
  int interrupt_;
  std::atomic<bool> interrupted_ = false;
};

}  // namespace

std::unique_ptr<SqlSignals> open_postgres_signals(std::shared_ptr<PostgresPool> pool) {
  return std::make_unique<PostgresSignals>(std::move(pool));
}

}  // namespace flux2
