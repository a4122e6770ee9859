#include "server/jobs/events.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "server/store/ids.h"

namespace flux2 {

namespace {

constexpr size_t kMostToldEarly = 1000;  // nobody may ask for them; as many as the store keeps

std::string event_text(const Json& data) { return data.dump(-1, ' ', false, Json::error_handler_t::replace); }

// The job that a stored event is about: its data are the job itself or name it.
std::string job_of_data(const std::string& data) {
  constexpr std::string_view kPrefix = "job_";
  const Json json = Json::parse(data, nullptr, false);
  if (!json.is_object()) return {};
  for (const char* member : {"job_id", "id"}) {
    const auto found = json.find(member);
    if (found == json.end() || !found->is_string()) continue;
    const std::string id = id_without_prefix(found->get<std::string>(), kPrefix);
    if (!id.empty()) return id;
  }
  return {};
}

}  // namespace

int64_t Events::listen(Listener listener, const std::string& job) {
  const std::lock_guard lock(mutex_);
  listeners_[next_] = {job, std::make_shared<Listener>(std::move(listener))};
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
    // Others may have stored events before this one whose news has not arrived yet.
    if (last_told_ >= 0 && event.id > last_told_ + 1) {
      std::vector<Event> told = tell_stored(event.id);
      std::move(told.begin(), told.end(), std::back_inserter(told_early_));
      if (told_early_.size() > kMostToldEarly) told_early_.erase(told_early_.begin(), told_early_.end() - kMostToldEarly);
    }
  } catch (const Error&) {  // what happened has happened: those who listen must know
  }
  if (event.id != 0) last_told_ = event.id;
  tell(event);
}

std::vector<Event> Events::catch_up() {
  const std::lock_guard lock(order_);
  if (last_told_ < 0) {
    last_told_ = store_.last_event();
    return {};
  }
  std::vector<Event> later = tell_stored(std::numeric_limits<int64_t>::max());
  std::vector<Event> told = std::exchange(told_early_, {});
  std::move(later.begin(), later.end(), std::back_inserter(told));
  return told;
}

std::vector<Event> Events::tell_stored(int64_t before) {
  std::vector<Event> told;
  for (StoredEvent& stored : store_.events_after(last_told_)) {
    if (stored.id >= before) break;
    last_told_ = stored.id;
    std::string job = job_of_data(stored.data);
    told.push_back({.id = stored.id, .name = std::move(stored.name), .data = std::move(stored.data), .job = std::move(job)});
    tell(told.back());
  }
  return told;
}

void Events::set_outlet(std::function<void(const Event&)> outlet) {
  const std::lock_guard lock(outlet_mutex_);
  outlet_ = std::move(outlet);
}

void Events::publish_progress(std::string name, const Json& data, const std::string& job) {
  const Event event{.name = std::move(name), .data = event_text(data), .job = job, .may_drop = true};
  tell(event);
  const std::lock_guard lock(outlet_mutex_);
  if (outlet_) outlet_(event);
}

bool Events::anybody_listens() {
  if (batches_.anybody_listens()) return true;
  const std::lock_guard lock(mutex_);
  return !listeners_.empty();
}

void Events::tell(const Event& event) {
  batches_.add(event);
  std::vector<std::shared_ptr<Listener>> listeners;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [handle, one] : listeners_)
      if (one.job.empty() || one.job == event.job || event.name == kKeepAlive) listeners.push_back(one.listener);
  }
  for (const auto& listener : listeners) {
    try {
      (*listener)(event);
    } catch (const std::exception&) {  // one listener's failure is not the others'
    }
  }
}

}  // namespace flux2
