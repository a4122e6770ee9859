#include "server/http/server_core.h"

#include <fmt/format.h>

#include "server/http/connection.h"

namespace flux2 {

ServerCore::ServerCore(ListenOptions options_, HttpListener::Admit admit_, HttpListener::Handle handle_)
    : io(options_.io_threads),
      pool(options_.handler_threads),
      options(std::move(options_)),
      admit(std::move(admit_)),
      handle(std::move(handle_)) {
  io_guard_.emplace(io.get_executor());
  pool_guard_.emplace(pool.get_executor());
  std::random_device device;
  random_.seed((static_cast<uint64_t>(device()) << 32) ^ device());
}

void ServerCore::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  io_guard_.reset();
  pool_guard_.reset();
}

void ServerCore::enter(Connection& connection) {
  const std::lock_guard lock(mutex_);
  connections_.insert(&connection);
}

void ServerCore::leave(Connection& connection) {
  const std::lock_guard lock(mutex_);
  connections_.erase(&connection);
  if (connections_.empty()) empty_.notify_all();
}

size_t ServerCore::connection_count() const {
  const std::lock_guard lock(mutex_);
  return connections_.size();
}

std::vector<std::shared_ptr<Connection>> ServerCore::connections() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Connection>> all;
  for (Connection* connection : connections_)
    if (auto held = connection->weak_from_this().lock()) all.push_back(std::move(held));
  return all;
}

bool ServerCore::wait_until_empty(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return empty_.wait_for(lock, time, [&] { return connections_.empty(); });
}

std::string ServerCore::new_request_id() {
  const std::lock_guard lock(mutex_);
  return fmt::format("req_{:016x}", random_());
}

}  // namespace flux2
