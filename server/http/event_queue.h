#pragma once

#include <cstddef>
#include <deque>

#include "server/http/exchange.h"

namespace flux2 {

// The events that wait for a client that reads slowly. At most 256, of at most 1 MiB together; when there are more, the oldest
// that may be dropped are. Finished images are larger than that: up to 16 large events count only by their number.
class EventQueue {
 public:
  static constexpr size_t kEvents = 256, kBytes = 1 << 20, kLargeEvent = 128 << 10, kLargeEvents = 16;

  // False: the client is too slow, and only events that must arrive are waiting.
  bool push(EventStream::SharedText text, EventStream::Keep keep);
  EventStream::SharedText pop();  // the oldest
  bool empty() const { return events_.empty(); }
  size_t size() const { return events_.size(); }
  size_t bytes() const { return bytes_; }  // of those that are not large
  void clear();

 private:
  struct Waiting {
    EventStream::SharedText text;
    EventStream::Keep keep;
  };
  bool is_over() const { return events_.size() > kEvents || bytes_ > kBytes || large_ > kLargeEvents; }
  void count(const Waiting& event, bool added);

  std::deque<Waiting> events_;
  size_t bytes_ = 0, large_ = 0;
};

}  // namespace flux2
