#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace flux2 {

struct Event {
  int64_t id = 0;         // 0: it is not stored
  std::string name;       // "job.started", "progress"
  std::string data;       // a JSON object
  std::string job;        // its id without prefix; empty: about no job
  bool may_drop = false;  // progress and previews
};

// The name of an event that only shows clients that the connection lives; it is sent as a comment.
constexpr const char* kKeepAlive = "keep-alive";

// Events that happened close together, for everybody who listens to everything.
struct EventBatch {
  std::vector<Event> events;
  std::shared_ptr<const std::string> text;  // all of them as server-sent events, written once for all listeners
  int64_t first_id = 0;                     // of those with an id; 0: there is none
  int64_t last_id = 0;
};

// Gathers events for many listeners. A write to each of 2,000 clients takes the processor about 50 ms, so not every event can be
// a write of its own: the more listeners there are, the longer events are gathered (0.25 ms for each listener, at most half a
// second). The first event after a quiet time is passed on at once.
class EventBatches {
 public:
  EventBatches() = default;
  EventBatches(const EventBatches&) = delete;
  EventBatches& operator=(const EventBatches&) = delete;
  ~EventBatches();

  using Listener = std::function<void(const std::shared_ptr<const EventBatch>&)>;
  int64_t listen(Listener listener);  // called from one thread; returns a handle for leave()
  void leave(int64_t handle);         // the listener may just be called
  bool anybody_listens() const;

  // Progress replaces earlier progress of the same name and job that still waits.
  void add(const Event& event);

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  void pass_on(std::vector<Event> events);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, std::shared_ptr<Listener>> listeners_;
  std::vector<Event> waiting_;
  int64_t next_ = 1;
  bool stopping_ = false;
  std::jthread thread_;  // since the first listener
};

}  // namespace flux2
