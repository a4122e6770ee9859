#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <unordered_set>
#include <vector>

#include "server/http/listener.h"
#include "server/http/transport.h"

namespace flux2 {

class Connection;

// What the connections of a listener share. It lives as long as any of them, so that an answer that comes after the listener is
// gone finds its event loop, which then drops it.
class ServerCore {
 public:
  ServerCore(ListenOptions options_, HttpListener::Admit admit_, HttpListener::Handle handle_);

  boost::asio::io_context io, pool;
  const ListenOptions options;
  const HttpListener::Admit admit;
  const HttpListener::Handle handle;
  HttpListener::Accept accept;  // may be empty
  std::unique_ptr<boost::asio::ssl::context> tls;
  std::atomic<int64_t> streams{0}, requests{0};
  std::atomic<bool> stopping{false};

  // Both drop the call and return false once the loops have ended: nothing would run it, and it would keep its connection for
  // ever.
  template <class F>
  bool post(const Strand& strand, F&& call) {
    const std::lock_guard lock(mutex_);
    if (!ended_) boost::asio::post(strand, std::forward<F>(call));
    return !ended_;
  }
  template <class F>
  bool post_to_pool(F&& call) {
    const std::lock_guard lock(mutex_);
    if (!ended_) boost::asio::post(pool, std::forward<F>(call));
    return !ended_;
  }
  void end();  // no more posts; the loops return when they have nothing left to do

  void enter(Connection& connection);
  void leave(Connection& connection);
  size_t connection_count() const;
  std::vector<std::shared_ptr<Connection>> connections() const;
  bool wait_until_empty(std::chrono::milliseconds time);

  std::string new_request_id();

 private:
  using Guard = boost::asio::executor_work_guard<boost::asio::io_context::executor_type>;
  std::optional<Guard> io_guard_, pool_guard_;
  mutable std::mutex mutex_;
  std::condition_variable empty_;
  std::unordered_set<Connection*> connections_;
  bool ended_ = false;
  std::mt19937_64 random_;
};

}  // namespace flux2
