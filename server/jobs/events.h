#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/jobs/event_batches.h"
#include "server/store/job_store.h"

namespace flux2 {

// Tells listeners of this process what happens. State events are stored as well, so that a client can catch up after a
// restart; progress and previews are not.
class Events {
 public:
  explicit Events(JobStore& store) : store_(store) {}

  // A listener must be quick and must not publish. Stored events reach it in the order of their ids.
  using Listener = std::function<void(const Event&)>;
  int64_t listen(Listener listener, const std::string& job = {});  // job: only what is about it. Returns a handle for leave()
  void leave(int64_t handle);                                      // another thread may just be calling the listener

  // For those who listen to everything: many of them cost little, but under load they hear of it a little later.
  EventBatches& batches() { return batches_; }

  // Stored and numbered. If the store fails (a full disk), listeners get the event without an id.
  void publish(std::string name, const Json& data, const std::string& job = {});
  // Neither. A newer one of the same name and job may replace it.
  void publish_progress(std::string name, const Json& data, const std::string& job = {});
  bool anybody_listens();

  // ---- where several processes share the store ----

  // Tells listeners what other processes have stored since the last call, in order, and returns it. What publish() had to tell
  // before its own event is among it. The first call returns nothing.
  std::vector<Event> catch_up();
  void tell_here(const Event& event) { tell(event); }  // progress of another process
  // Gets what publish_progress() is called with, for other processes. Empty: nobody does.
  void set_outlet(std::function<void(const Event&)> outlet);

 private:
  struct Listening {
    std::string job;
    std::shared_ptr<Listener> listener;
  };
  void tell(const Event& event);
  std::vector<Event> tell_stored(int64_t before);

  JobStore& store_;
  std::mutex mutex_;  // guards listeners_ and next_
  std::mutex order_;  // held from numbering an event until all listeners have it
  std::map<int64_t, Listening> listeners_;
  int64_t next_ = 1;
  int64_t last_told_ = -1;         // guarded by order_: the newest stored event that listeners have; −1: none yet
  std::vector<Event> told_early_;  // guarded by order_: by publish(), for the next catch_up()
  std::mutex outlet_mutex_;
  std::function<void(const Event&)> outlet_;
  EventBatches batches_;
};

}  // namespace flux2
