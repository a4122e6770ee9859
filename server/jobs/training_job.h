#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "app/training.h"
#include "server/jobs/allowed_folders.h"
#include "server/jobs/job_queue.h"
#include "server/store/run_store.h"

namespace flux2 {

// What a worker does for a training job that it runs.
struct TrainingHelp {
  std::function<bool()> stopping;     // the server ends
  std::function<bool()> others_wait;  // a job that may interrupt training waits
  std::function<bool()> fits_beside;  // that job fits into memory beside the training
  // Runs such jobs until none has come for a while, or until `ends`.
  std::function<void(const std::function<bool()>& ends)> run_others;
};

// Runs one training job: from the claim to its end, with pauses for other jobs. Losses, samples and checkpoints go to the store
// and to listeners. What is learnt does not depend on interruptions.
class TrainingJob {
 public:
  TrainingJob(JobQueue& queue, RunStore& runs, Job job, const AppContext& context, const Settings& defaults,
              const AllowedFolders& allowed, TrainingHelp help);

  void run();                              // throws nothing
  const Job& job() const { return job_; }  // at the end: how it ended
  // After run(): its end is stored, it went back to the queue, or another worker has it. If not, the store failed.
  bool is_over() const { return over_ || lost_; }

 private:
  using Clock = std::chrono::steady_clock;
  // Why training has to end before it is complete.
  enum class Ask { None, Others, Restart, Pause, Stop, Drop, Shutdown, Lost };

  TrainingResult train_once();
  TrainingFrontEnd front_end();
  Ask asked(bool at_step);  // looks at most every 100 ms, except for the end of the server
  StopRequest after_step();
  void make_way();      // runs the others while training stays in memory
  bool ended(Ask why);  // whether the job is over; otherwise it goes on
  void at(const Json& event);
  void at_start(const Json& event);
  void at_step(const Json& event);
  void at_sample(const Json& event);
  void at_checkpoint(const Json& event);
  void flush();  // stores what was collected and tells listeners
  void set_state(const std::string& state);
  void tell_phase(Phase phase, int step, int steps);
  void finish(const std::string& state, const std::string& run_state);
  void fail(std::exception_ptr thrown);
  void store_progress();

  JobQueue& queue_;
  RunStore& runs_;
  Job job_;
  AppContext context_;
  const Settings& defaults_;
  const AllowedFolders& allowed_;
  TrainingHelp help_;
  Run run_;
  std::filesystem::path folder_;
  Json warnings_ = Json::array();
  std::vector<RunMetric> metrics_;  // not stored yet
  Json points_ = Json::array();     // not told yet
  bool trains_ = false;             // the first step has begun
  std::mutex mutex_;                // guards ask_, looked_: caches are made by several threads
  Ask ask_ = Ask::None;
  Clock::time_point looked_ = {}, flushed_ = {};
  std::atomic<bool> lost_ = false;  // another worker has the job
  bool over_ = false, run_ended_ = false;
};

// A run as the native API shows it.
Json run_to_json(const Run& run);

}  // namespace flux2
