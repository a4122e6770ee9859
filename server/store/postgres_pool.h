#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "server/store/postgres_connection.h"

namespace flux2 {

// The connections that threads share. Thread-safe.
class PostgresPool {
 public:
  using Clock = std::chrono::steady_clock;

  PostgresPool(PostgresAddress address, std::string origin, int limit);

  // A connection for one transaction. It goes back to the pool, or is closed if it has failed.
  class Lease {
   public:
    Lease(PostgresPool& pool, std::unique_ptr<PostgresConnection> connection) : pool_(pool), connection_(std::move(connection)) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { pool_.give_back(std::move(connection_)); }
    PostgresConnection& operator*() const { return *connection_; }
    PostgresConnection* operator->() const { return connection_.get(); }

   private:
    PostgresPool& pool_;
    std::unique_ptr<PostgresConnection> connection_;
  };
  // Waits until one is free; opens one where the limit allows it. Throws DatabaseAway at `until`.
  Lease take(Clock::time_point until);

  // A connection of its own, beyond the limit.
  std::unique_ptr<PostgresConnection> connect();
  void forget_idle();  // the server was restarted: the others are dead as well

  bool is_available() const { return available_; }
  const std::string& origin() const { return origin_; }

 private:
  std::unique_ptr<PostgresConnection> connect_until(Clock::time_point until);
  void give_back(std::unique_ptr<PostgresConnection> connection);

  PostgresAddress address_;
  std::string origin_;
  int limit_;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<std::unique_ptr<PostgresConnection>> idle_;  // the last one used at the end
  int open_ = 0;
  std::atomic<bool> available_ = true;
};

}  // namespace flux2
