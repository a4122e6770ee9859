#include "server/jobs/event_batches.h"

#include <algorithm>

#include "base/start_thread.h"
#include "server/http/exchange.h"

namespace flux2 {

namespace {

constexpr std::chrono::microseconds kPerListener{250}, kLongestGathering{500'000};

std::string event_lines(const Event& event) {
  if (event.name == kKeepAlive) return EventStream::text_of_comment(kKeepAlive);
  return EventStream::text_of(event.id, event.name, event.data);
}

}  // namespace

EventBatches::~EventBatches() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
}

int64_t EventBatches::listen(Listener listener) {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = start_thread("the event streams", [this] { run(); });
  listeners_[next_] = std::make_shared<Listener>(std::move(listener));
  return next_++;
}

void EventBatches::leave(int64_t handle) {
  const std::lock_guard lock(mutex_);
  listeners_.erase(handle);
}

bool EventBatches::anybody_listens() const {
  const std::lock_guard lock(mutex_);
  return !listeners_.empty();
}

void EventBatches::add(const Event& event) {
  {
    const std::lock_guard lock(mutex_);
    if (listeners_.empty()) return;
    if (event.may_drop)
      std::erase_if(waiting_, [&](const Event& e) { return e.may_drop && e.name == event.name && e.job == event.job; });
    waiting_.push_back(event);
  }
  changed_.notify_one();
}

void EventBatches::run() {
  Clock::time_point next = {};
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    changed_.wait_until(lock, next, [this] { return stopping_; });
    if (stopping_) return;
    std::vector<Event> events;
    events.swap(waiting_);
    const auto pause = std::min<Clock::duration>(kPerListener * static_cast<int64_t>(listeners_.size()), kLongestGathering);
    lock.unlock();
    next = Clock::now() + pause;
    pass_on(std::move(events));
    lock.lock();
  }
}

void EventBatches::pass_on(std::vector<Event> events) {
  EventBatch batch;
  batch.events = std::move(events);
  std::string text;
  for (const Event& event : batch.events) {
    text += event_lines(event);
    if (event.id == 0) continue;
    if (batch.first_id == 0) batch.first_id = event.id;
    batch.last_id = event.id;
  }
  batch.text = std::make_shared<const std::string>(std::move(text));
  std::vector<std::shared_ptr<Listener>> listeners;
  {
    const std::lock_guard lock(mutex_);
    listeners.reserve(listeners_.size());
    for (const auto& [handle, listener] : listeners_) listeners.push_back(listener);
  }
  const auto shared = std::make_shared<const EventBatch>(std::move(batch));
  for (const auto& listener : listeners) {
    try {
      (*listener)(shared);
    } catch (const std::exception&) {  // one listener's failure is not the others'
    }
  }
}

}  // namespace flux2
