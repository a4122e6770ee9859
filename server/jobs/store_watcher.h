#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "base/log.h"
#include "server/jobs/job_queue.h"

namespace flux2 {

// Where several processes share a store: what others do reaches the listeners, the workers and the waiting clients of this one.
// PostgreSQL sends signals; an SQLite file is looked at twice a second while somebody waits for news.
class StoreWatcher {
 public:
  StoreWatcher(JobQueue& queue, Log log);
  ~StoreWatcher() { stop(); }

  void start();
  void stop();

 private:
  void receive();
  void look();
  void take(const SqlSignal& signal);
  void catch_up();
  void pass_out(const Event& event);
  void send();

  JobQueue& queue_;
  Log log_;
  std::unique_ptr<SqlSignals> signals_;  // nothing: the store has none
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;  // guards outgoing_
  std::condition_variable changed_;
  std::deque<Event> outgoing_;  // progress for other processes; only the newest of each job
  std::jthread receiving_, sending_;
};

}  // namespace flux2
