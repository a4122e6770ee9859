#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "server/http/exchange.h"

namespace flux2 {

class Connection;

// The exchange's way back to its connection. It is answered once; if nobody answers, its destructor does.
class RequestPeer : public Exchange::Peer {
 public:
  RequestPeer(std::shared_ptr<Connection> connection, std::shared_ptr<const ServerRequest> request)
      : connection_(std::move(connection)), request_(std::move(request)) {}
  ~RequestPeer() override;

  void respond(HttpResponse response) override;
  std::shared_ptr<EventStream::Channel> stream(Headers headers) override;
  void on_disconnect(std::function<void()> call) override;

  void gone();  // the client has left: runs the calls of on_disconnect

 private:
  bool claim();  // true for the first answer

  const std::shared_ptr<Connection> connection_;
  const std::shared_ptr<const ServerRequest> request_;
  std::mutex mutex_;
  std::vector<std::function<void()>> calls_;
  bool answered_ = false, gone_ = false;
};

}  // namespace flux2
