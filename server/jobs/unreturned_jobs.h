#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "server/store/job_store.h"

namespace flux2 {

// Jobs of a worker whose end could not be stored. Their leases are renewed until they can go back to the queue, so that no other
// worker counts them as lost meanwhile. Any thread may call.
class UnreturnedJobs {
 public:
  void add(std::string id) {
    const std::lock_guard lock(mutex_);
    ids_.push_back(std::move(id));
  }

  // These and the jobs of `running`: what the worker's leases are for.
  std::vector<std::string> with(std::vector<std::string> running) const {
    const std::lock_guard lock(mutex_);
    running.insert(running.end(), ids_.begin(), ids_.end());
    return running;
  }

  // Throws what the store throws. What could not be given back stays for the next call.
  void give_back(JobStore& store, const std::string& worker) {
    for (;;) {
      std::string id;
      {
        const std::lock_guard lock(mutex_);
        if (ids_.empty()) return;
        id = ids_.front();
      }
      store.give_back(id, worker);
      const std::lock_guard lock(mutex_);
      std::erase(ids_, id);
    }
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> ids_;
};

}  // namespace flux2
