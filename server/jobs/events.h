#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/json.h"
#include "server/store/job_store.h"

namespace flux2 {

struct Event {
  int64_t id = 0;         // 0: it is not stored
  std::string name;       // "job.started", "progress"
  std::string data;       // a JSON object
  std::string job;        // its id without prefix; empty: about no job
  bool may_drop = false;  // progress and previews
};

// Tells listeners of this process what happens. State events are stored as well, so that a client can catch up after a
// restart; progress and previews are not.
class Events {
 public:
  explicit Events(JobStore& store) : store_(store) {}

  // A listener must be quick and must not publish. Stored events reach it in the order of their ids.
  using Listener = std::function<void(const Event&)>;
  int64_t listen(Listener listener);  // returns a handle for leave()
  void leave(int64_t handle);         // another thread may just be calling the listener

  // Stored and numbered. If the store fails (a full disk), listeners get the event without an id.
  void publish(std::string name, const Json& data, const std::string& job = {});
  void publish_progress(std::string name, const Json& data, const std::string& job);  // neither

 private:
  void tell(const Event& event);

  JobStore& store_;
  std::mutex mutex_;  // guards listeners_ and next_
  std::mutex order_;  // held from numbering an event until all listeners have it
  std::map<int64_t, std::shared_ptr<Listener>> listeners_;
  int64_t next_ = 1;
};

}  // namespace flux2
