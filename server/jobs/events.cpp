#include "server/jobs/events.h"

#include <vector>

#include "base/error.h"
#include "server/store/ids.h"

namespace flux2 {

namespace {

std::string event_text(const Json& data) { return data.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

int64_t Events::listen(Listener listener) {
  const std::lock_guard lock(mutex_);
  listeners_[next_] = std::make_shared<Listener>(std::move(listener));
  return next_++;
}

void Events::leave(int64_t handle) {
  const std::lock_guard lock(mutex_);
  listeners_.erase(handle);
}

void Events::publish(std::string name, const Json& data, const std::string& job) {
  Event event{.name = std::move(name), .data = event_text(data), .job = job};
  const std::lock_guard lock(order_);
  try {
    event.id = store_.add_event(event.name, event.data, now_ms());
  } catch (const Error&) {  // what happened has happened: those who listen must know
  }
  tell(event);
}

void Events::publish_progress(std::string name, const Json& data, const std::string& job) {
  tell({.name = std::move(name), .data = event_text(data), .job = job, .may_drop = true});
}

void Events::tell(const Event& event) {
  std::vector<std::shared_ptr<Listener>> listeners;
  {
    const std::lock_guard lock(mutex_);
    listeners.reserve(listeners_.size());
    for (const auto& [handle, listener] : listeners_) listeners.push_back(listener);
  }
  for (const auto& listener : listeners) {
    try {
      (*listener)(event);
    } catch (const std::exception&) {  // one listener's failure is not the others'
    }
  }
}

}  // namespace flux2
