#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/http/event_queue.h"
#include "server/http/exchange.h"

namespace flux2 {

// What the writer of a stream and its connection share. The connection takes events from it and tells it when the client has
// gone.
class EventChannel : public EventStream::Channel {
 public:
  // `wake` makes the connection look for events; called from any thread.
  explicit EventChannel(std::function<void()> wake) : wake_(std::move(wake)) {}

  bool send(std::string text, EventStream::Keep keep) override;
  bool send_shared(EventStream::SharedText text, EventStream::Keep keep) override;
  void close() override;
  void on_closed(std::function<void()> call) override;

  // For the connection:
  struct Next {
    EventStream::SharedText text;  // none: nothing waits
    bool is_last = false;          // closed by the writer, and nothing waits
  };
  Next next();
  bool overflowed();  // the client is too slow
  void closed();      // the connection has ended: runs the calls of on_closed

 private:
  std::mutex mutex_;
  EventQueue queue_;
  std::function<void()> wake_;
  std::vector<std::function<void()>> calls_;
  bool closing_ = false, overflowed_ = false, closed_ = false;
};

// The writer's end: when its last copy goes, the stream is closed.
class EventChannelHandle : public EventStream::Channel {
 public:
  explicit EventChannelHandle(std::shared_ptr<EventChannel> channel) : channel_(std::move(channel)) {}
  ~EventChannelHandle() override { channel_->close(); }

  bool send(std::string text, EventStream::Keep keep) override { return channel_->send(std::move(text), keep); }
  bool send_shared(EventStream::SharedText text, EventStream::Keep keep) override {
    return channel_->send_shared(std::move(text), keep);
  }
  void close() override { channel_->close(); }
  void on_closed(std::function<void()> call) override { channel_->on_closed(std::move(call)); }

 private:
  std::shared_ptr<EventChannel> channel_;
};

}  // namespace flux2
