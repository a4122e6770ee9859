#include "server/jobs/store_watcher.h"

#include <algorithm>

#include "base/error.h"
#include "base/start_thread.h"

namespace flux2 {

namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(500);
constexpr auto kSignalWait = std::chrono::milliseconds(5000);
constexpr auto kCancelPollWithSignals = std::chrono::milliseconds(2000);  // only in case a signal was lost
constexpr size_t kLongestQueue = 64;

// What stays in this process: every process counts the queue itself, and the bytes of a preview are here.
bool stays_here(const Event& event) { return event.name == kKeepAlive || event.name == "queue" || event.name == "preview"; }

bool is_end(const Event& event) {
  return event.name == "job.completed" || event.name == "job.failed" || event.name == "job.cancelled";
}

}  // namespace

StoreWatcher::StoreWatcher(JobQueue& queue, Log log) : queue_(queue), log_(std::move(log)) {}

void StoreWatcher::start() {
  queue_.events().catch_up();  // what happened before is no news
  signals_ = queue_.store().signals();
  if (!signals_) {
    receiving_ = start_thread("news of other processes", [this] { look(); });
    return;
  }
  queue_.set_cancel_poll(kCancelPollWithSignals);
  queue_.events().set_outlet([this](const Event& event) { pass_out(event); });
  receiving_ = start_thread("news of other processes", [this] { receive(); });
  sending_ = start_thread("progress for other processes", [this] { send(); });
}

void StoreWatcher::stop() {
  if (stopping_.exchange(true)) return;
  queue_.events().set_outlet({});
  if (signals_) signals_->interrupt();
  {
    const std::lock_guard lock(mutex_);  // nobody is between looking at stopping_ and waiting
  }
  changed_.notify_all();
  if (receiving_.joinable()) receiving_.join();
  if (sending_.joinable()) sending_.join();
}

void StoreWatcher::look() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLookEvery, [this] { return stopping_.load(); })) {
    lock.unlock();
    try {
      if (queue_.events().anybody_listens() || queue_.anybody_waits()) catch_up();
    } catch (const std::exception& e) {
      log_.debug("news of other processes were not read: {}", e.what());
    }
    lock.lock();
  }
}

void StoreWatcher::receive() {
  while (!stopping_) {
    try {
      bool events = false;
      for (const SqlSignal& signal : signals_->wait(kSignalWait)) {
        if (signal.kind == kEventSignal) events = true;  // one look finds them all
        else take(signal);
      }
      if (events) catch_up();
    } catch (const std::exception& e) {
      log_.debug("news of other processes were not read: {}", e.what());
    }
  }
}

void StoreWatcher::take(const SqlSignal& signal) {
  if (signal.kind == kWorkSignal) {
    queue_.wake();
    queue_.publish_queue();
  } else if (signal.kind == kCancelSignal) {
    queue_.note_cancel(signal.text);
  } else if (signal.kind == kSkipSignal) {
    queue_.note_skip(signal.text);
  } else if (signal.kind == kProgressSignal) {
    const Json json = parse_json(signal.text);
    queue_.events().tell_here({.name = json.value("name", std::string()),
                               .data = json.value("data", std::string()),
                               .job = json.value("job", std::string()),
                               .may_drop = true});
  } else if (signal.kind == kMissedSignal) {
    queue_.wake();
    catch_up();
    queue_.check_waiting();
  }
}

void StoreWatcher::catch_up() {
  bool jobs = false;
  for (const Event& event : queue_.events().catch_up()) {
    jobs = jobs || event.name.starts_with("job.");
    if (is_end(event)) queue_.ended_elsewhere(event.job);
  }
  if (jobs) queue_.publish_queue();
}

void StoreWatcher::pass_out(const Event& event) {
  if (stays_here(event)) return;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(outgoing_, [&](const Event& older) { return older.name == event.name && older.job == event.job; });
    if (outgoing_.size() >= kLongestQueue) outgoing_.pop_front();
    outgoing_.push_back(event);
  }
  changed_.notify_all();
}

void StoreWatcher::send() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !outgoing_.empty(); });
    if (stopping_) return;
    const Event event = std::move(outgoing_.front());
    outgoing_.pop_front();
    lock.unlock();
    queue_.store().send(kProgressSignal, Json{{"name", event.name}, {"data", event.data}, {"job", event.job}}.dump());
    lock.lock();
  }
}

}  // namespace flux2
