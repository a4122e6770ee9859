#include "server/store/postgres_pool.h"

#include <thread>

namespace flux2 {

namespace {

constexpr auto kConnectEvery = std::chrono::milliseconds(200);

}  // namespace

PostgresPool::PostgresPool(PostgresAddress address, std::string origin, int limit)
    : address_(std::move(address)), origin_(std::move(origin)), limit_(limit) {
  check(limit > 0, "a pool needs at least one connection");
}

std::unique_ptr<PostgresConnection> PostgresPool::connect() {
  try {
    auto connection = std::make_unique<PostgresConnection>(address_, origin_);
    available_ = true;
    return connection;
  } catch (const Error&) {
    available_ = false;
    throw;
  }
}

std::unique_ptr<PostgresConnection> PostgresPool::connect_until(Clock::time_point until) {
  for (;;) {
    try {
      return connect();
    } catch (const DatabaseAway&) {
      if (Clock::now() >= until) throw;
    } catch (const Error& e) {
      // The server is there and refuses us. It did not before, so this may pass: too many connections, say.
      if (Clock::now() >= until) throw DatabaseAway(ErrorCode::Network, e.what(), e.hint());
    }
    std::this_thread::sleep_for(kConnectEvery);
  }
}

PostgresPool::Lease PostgresPool::take(Clock::time_point until) {
  {
    std::unique_lock lock(mutex_);
    const bool there = freed_.wait_until(lock, until, [this] { return !idle_.empty() || open_ < limit_; });
    if (!there) throw DatabaseAway(ErrorCode::Network, "all connections to " + address_.shown() + " are in use", "try again");
    if (!idle_.empty()) {
      auto connection = std::move(idle_.back());
      idle_.pop_back();
      return {*this, std::move(connection)};
    }
    ++open_;
  }
  try {
    return {*this, connect_until(until)};
  } catch (...) {
    give_back(nullptr);
    throw;
  }
}

void PostgresPool::give_back(std::unique_ptr<PostgresConnection> connection) {
  if (connection && !connection->is_alive()) connection.reset();
  {
    const std::lock_guard lock(mutex_);
    if (connection) idle_.push_back(std::move(connection));
    else --open_;
  }
  freed_.notify_one();
}

void PostgresPool::forget_idle() {
  std::vector<std::unique_ptr<PostgresConnection>> closed;
  {
    const std::lock_guard lock(mutex_);
    closed.swap(idle_);
    open_ -= static_cast<int>(closed.size());
  }
  freed_.notify_all();
}

}  // namespace flux2
