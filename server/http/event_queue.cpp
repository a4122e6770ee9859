#include "server/http/event_queue.h"

#include <algorithm>

namespace flux2 {

void EventQueue::count(const Waiting& event, bool added) {
  size_t& counted = event.text->size() > kLargeEvent ? large_ : bytes_;
  const size_t amount = event.text->size() > kLargeEvent ? 1 : event.text->size();
  counted = added ? counted + amount : counted - amount;
}

bool EventQueue::push(EventStream::SharedText text, EventStream::Keep keep) {
  events_.push_back({std::move(text), keep});
  count(events_.back(), true);
  while (is_over()) {
    const auto oldest = std::ranges::find(events_, EventStream::Keep::IfRoom, &Waiting::keep);
    if (oldest == events_.end()) return false;
    count(*oldest, false);
    events_.erase(oldest);
  }
  return true;
}

EventStream::SharedText EventQueue::pop() {
  count(events_.front(), false);
  EventStream::SharedText text = std::move(events_.front().text);
  events_.pop_front();
  return text;
}

void EventQueue::clear() {
  events_ = {};
  bytes_ = large_ = 0;
}

}  // namespace flux2
