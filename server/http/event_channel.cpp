#include "server/http/event_channel.h"

namespace flux2 {

bool EventChannel::send(std::string text, EventStream::Keep keep) {
  return send_shared(std::make_shared<const std::string>(std::move(text)), keep);
}

bool EventChannel::send_shared(EventStream::SharedText text, EventStream::Keep keep) {
  {
    const std::lock_guard lock(mutex_);
    if (closing_ || closed_) return false;
    if (!queue_.push(std::move(text), keep)) {
      overflowed_ = closing_ = true;
      queue_.clear();
    }
  }
  wake_();
  const std::lock_guard lock(mutex_);
  return !overflowed_;
}

void EventChannel::close() {
  {
    const std::lock_guard lock(mutex_);
    if (closing_ || closed_) return;
    closing_ = true;
  }
  wake_();
}

void EventChannel::on_closed(std::function<void()> call) {
  {
    const std::lock_guard lock(mutex_);
    if (!closed_) {
      calls_.push_back(std::move(call));
      return;
    }
  }
  call();
}

EventChannel::Next EventChannel::next() {
  const std::lock_guard lock(mutex_);
  Next next;
  if (!queue_.empty()) next.text = queue_.pop();
  else next.is_last = closing_;
  return next;
}

bool EventChannel::overflowed() {
  const std::lock_guard lock(mutex_);
  return overflowed_;
}

void EventChannel::closed() {
  std::vector<std::function<void()>> calls;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = closing_ = true;
    queue_.clear();
    calls.swap(calls_);
  }
  for (const auto& call : calls) call();
}

}  // namespace flux2
