#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "server/http/message.h"

namespace flux2 {

// A stream of server-sent events to one client. A handle: copies share the stream. All calls are thread-safe and return at once.
class EventStream {
 public:
  enum class Keep {
    Always,  // if the client reads too slowly for it, the stream is closed; the client comes back with Last-Event-ID
    IfRoom,  // progress and previews: the oldest of these is dropped first
  };

  using SharedText = std::shared_ptr<const std::string>;

  class Channel {  // implemented by the connection
   public:
    virtual ~Channel() = default;
    virtual bool send(std::string text, Keep keep) = 0;
    // The same bytes for many clients.
    virtual bool send_shared(SharedText text, Keep keep) { return send(*text, keep); }
    virtual void close() = 0;
    virtual void on_closed(std::function<void()> call) = 0;
  };

  explicit EventStream(std::shared_ptr<Channel> channel) : channel_(std::move(channel)) {}

  // One event with a data line for each line of `data`; id 0 and an empty name are left out. False once the stream is closed.
  bool event(int64_t id, std::string_view name, std::string_view data, Keep keep = Keep::Always) const;
  bool comment(std::string_view text) const;
  // Events as text_of() writes them, one or more.
  bool send(SharedText text, Keep keep = Keep::Always) const { return channel_->send_shared(std::move(text), keep); }
  static std::string text_of(int64_t id, std::string_view name, std::string_view data);
  static std::string text_of_comment(std::string_view text);
  void close() const { channel_->close(); }
  // Called once, on an I/O thread, when either side has closed the stream. At once if it is closed already.
  void on_closed(std::function<void()> call) const { channel_->on_closed(std::move(call)); }

 private:
  std::shared_ptr<Channel> channel_;
};

// Where the answer to one request goes. A handle: a handler may keep a copy and answer later, from any thread. A request whose
// last handle is gone without an answer is answered with status 500.
class Exchange {
 public:
  class Peer {  // implemented by the connection, and by tests
   public:
    virtual ~Peer() = default;
    virtual void respond(HttpResponse response) = 0;
    virtual std::shared_ptr<EventStream::Channel> stream(Headers headers) = 0;
    virtual void on_disconnect(std::function<void()> call) = 0;
  };

  Exchange(std::shared_ptr<const ServerRequest> request, std::shared_ptr<Peer> peer)
      : request_(std::move(request)), peer_(std::move(peer)) {}

  const ServerRequest& request() const { return *request_; }

  // The answer. Only the first call counts.
  void respond(HttpResponse response) const { peer_->respond(std::move(response)); }
  // Answers 200 with an event stream instead.
  EventStream stream(Headers headers = {}) const { return EventStream(peer_->stream(std::move(headers))); }
  // Called at most once, on an I/O thread, if the client leaves before it has been answered.
  void on_disconnect(std::function<void()> call) const { peer_->on_disconnect(std::move(call)); }

 private:
  std::shared_ptr<const ServerRequest> request_;
  std::shared_ptr<Peer> peer_;
};

}  // namespace flux2
