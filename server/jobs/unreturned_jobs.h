#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "server/jobs/job_queue.h"

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
  void give_back(JobQueue& queue, const std::string& worker) {
    // One thread at a time: another may have given the job back already, and claimed it again in the same worker's name.
    const std::lock_guard one(returning_);
    for (;;) {
      std::string id;
      {
        const std::lock_guard lock(mutex_);
        if (ids_.empty()) return;
        id = ids_.front();
      }
      queue.give_back(id, worker);
      const std::lock_guard lock(mutex_);
      std::erase(ids_, id);
    }
  }

 private:
  std::mutex returning_;  // taken before mutex_
  mutable std::mutex mutex_;
  std::vector<std::string> ids_;
};

}  // namespace flux2
