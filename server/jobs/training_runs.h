#pragma once

#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "app/context.h"
#include "app/settings.h"
#include "server/jobs/job_queue.h"
#include "server/jobs/training_request.h"
#include "server/store/run_store.h"

namespace flux2 {

// What can be done with a run. Throws HttpError 409 if its state does not allow it.
enum class RunAction { Pause, Resume, Stop, Change };
void check_action(const Run& run, RunAction action, bool has_job);

// Training runs and the jobs that run them. Thread-safe.
class TrainingRuns {
 public:
  TrainingRuns(const AppContext& context, const Settings& defaults, JobQueue& queue, RunStore& store, AllowedFolders allowed)
      : context_(context), defaults_(defaults), queue_(queue), store_(store), allowed_(std::move(allowed)) {}

  RunStore& store() { return store_; }
  const AllowedFolders& allowed() const { return allowed_; }
  std::filesystem::path folder_of(const Run& run) const { return queue_.assets().folder() / run.folder; }

  Json forecast(const TrainingRequest& request);  // what it would need; measures for a moment
  Run create(const TrainingRequest& request);     // and queues it. Throws HttpError 409 `name_taken`
  Run get(const std::string& id);                 // throws HttpError 404
  Run pause(const std::string& id);
  Run resume(const std::string& id);
  Run stop(const std::string& id, bool save);
  Run change(const std::string& id, const Json& options);

  // Makes a checkpoint usable as the adapter "run:NAME@STEP", also while training goes on. Returns that name.
  std::string try_checkpoint(const Run& run, int64_t step);
  StoredCheckpoint checkpoint_at(const Run& run, int64_t step);    // throws HttpError 404
  StoredCheckpoint keep_checkpoint(const Run& run, int64_t step);  // retention does not remove it
  void remove_checkpoint(const Run& run, int64_t step);
  Json checkpoints(const Run& run);

  // Continues runs whose job ended without them: their server was killed. To be called at the start and now and then.
  void revive();

 private:
  Run settled(Run run);  // after a look at its job
  void queue_job(Run& run);
  void queue_again(Run& run);
  bool has_job(const Run& run);
  Settings settings_of(const Json& stored) const;

  const AppContext& context_;
  const Settings& defaults_;
  JobQueue& queue_;
  RunStore& store_;
  AllowedFolders allowed_;
  std::mutex changing_;     // one change of a run at a time
  std::mutex forecasting_;  // forecasts measure, so they take turns
};

}  // namespace flux2
