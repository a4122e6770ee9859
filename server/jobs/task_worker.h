#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "app/context.h"
#include "server/jobs/job_queue.h"
#include "server/jobs/unreturned_jobs.h"

namespace flux2 {

// A job of the lanes net and cpu between its claim and its end, as the function that does the work sees it.
class RunningTask {
 public:
  RunningTask(JobQueue& queue, Job job, const AppContext& context, const std::atomic<bool>& stopping);

  const Job& job() const { return job_; }
  const AppContext& context() const { return context_; }  // whose warnings go to the job
  // Whether to stop: somebody cancelled the job, or the server ends. To be asked often; it looks into the store now and then.
  bool should_stop();
  // Tells listeners, at most four times a second unless the phase changes.
  void tell(const std::string& phase, double progress, const std::string& message = {});
  // What the job's record keeps, also if it fails.
  void set_result(Json result);
  // Goes into the job's record with the next progress that is stored, for other processes: a member of `resolved`.
  void keep(const char* name, Json value);
  // The state that it ends in, unless it fails.
  void end_as(std::string state) { end_state_ = std::move(state); }

 private:
  friend class TaskWorker;
  using Clock = std::chrono::steady_clock;

  JobQueue& queue_;
  Job job_;
  AppContext context_;
  const std::atomic<bool>& stopping_;
  std::mutex mutex_;  // downloads report and ask from several threads
  Json warnings_ = Json::array(), result_ = Json::object();
  std::string end_state_ = "completed";
  Clock::time_point asked_ = {}, told_ = {}, stored_ = {};
  bool cancel_ = false;
};

// Runs the jobs of one lane on a few threads of its own. Each kind of job has a function that does the work.
class TaskWorker {
 public:
  struct Options {
    std::string name;  // unique among all workers
    std::string lane;  // "net", "cpu"
    int threads = 1;   // jobs at a time
  };
  using Task = std::function<void(RunningTask&)>;

  TaskWorker(const AppContext& context, JobQueue& queue, Options options);
  ~TaskWorker() { stop(); }

  void add(const std::string& kind, Task task);  // before start()
  void start();
  void wake();  // a job of the lane was submitted
  // Jobs that run go back to the queue.
  void stop();

 private:
  void work();
  void run(Job job);
  void run_to_its_end(Job job);
  void keep_leases();

  const AppContext& context_;
  JobQueue& queue_;
  Options options_;
  std::map<std::string, Task> tasks_;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;              // guards woken_, running_
  std::condition_variable news_;  // a job, or the end
  uint64_t woken_ = 0;
  std::vector<std::string> running_;  // whose leases are renewed
  UnreturnedJobs unreturned_;
  std::vector<std::jthread> threads_;
};

}  // namespace flux2
