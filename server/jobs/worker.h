#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "app/context.h"
#include "app/model_keeper.h"
#include "app/prepare.h"
#include "app/settings.h"
#include "server/jobs/allowed_folders.h"
#include "server/jobs/running_job.h"
#include "server/jobs/saver.h"
#include "server/jobs/unreturned_jobs.h"

namespace flux2 {

class Rewriter;
class RunStore;

struct WorkerOptions {
  std::string name;                     // unique among all workers of the queue
  std::chrono::seconds idle_unload{0};  // frees the model after this time without a job; 0: never
  std::chrono::seconds keep_unsaved{3600};
  int max_batch = 0;                        // images of several jobs that run together; 0: 4, or up to 16 small ones
  std::chrono::milliseconds batch_wait{5};  // how long a job waits for company
  size_t max_models = 4;                    // in memory at a time, as far as it suffices
  // false: runs nothing itself, but looks after the queue that others work on.
  bool runs_jobs = true;
  std::chrono::milliseconds lease = std::chrono::seconds(30);  // as the store has it; renewed well before its end
  RunStore* runs = nullptr;                                    // training runs; null: jobs of this kind fail
  AllowedFolders allowed = {};                                 // where their datasets may be
  // Training that made way for a job goes on after this time without another such job.
  std::chrono::milliseconds preempt_wait{30'000};
};

// A model in memory.
struct ModelInMemory {
  std::string name, path, quant, device;
  int64_t bytes = 0;  // on a GPU of its memory, on a CPU of the files of its weights
  bool on_gpu = false;
  std::array<PictureMaker::Cache, 3> caches = {};
};

// What a worker does now.
struct WorkerState {
  std::vector<std::string> jobs;      // that run or whose images are being saved
  std::vector<ModelInMemory> models;  // the one that was used last is at the end
  bool loading = false;
  MemorySize device_memory = {};  // of the GPU in use; 0: there is none
  int64_t evicted = 0;            // models that made room for others since the start

  std::string model() const { return models.empty() ? "" : models.back().name; }  // that was used last
};

// Sums since the start.
struct WorkerTotals {
  int64_t images = 0, steps = 0, merged = 0, completed = 0, failed = 0, cancelled = 0;
  PhaseTimes seconds = {};
  double busy = 0;
};

// Runs the jobs of the gpu lane and keeps the models that were used last in memory. Jobs that differ in prompts and seeds alone
// run as one batch. Finished images are saved and previews are encoded on other threads, so that the engine goes on meanwhile. It
// knows nothing of HTTP.
class Worker {
 public:
  // `defaults` are the server's own settings, below those of each job.
  Worker(const AppContext& context, Settings defaults, JobQueue& queue, WorkerOptions options);
  ~Worker();

  void start();
  // Stops at the next block of the transformer. Jobs that run go back to the queue; those whose images are all there are saved.
  void stop();

  WorkerState state() const;
  WorkerTotals totals() const;
  void unload();                            // frees all models as soon as no job runs
  void forget_models() { forget_ = true; }  // where models were found: they have changed
  void load(const std::string& model);      // before a job needs it; "" for the default

 private:
  using Jobs = std::vector<std::unique_ptr<RunningJob>>;

  void work();
  void keep_leases();
  Jobs claim();
  Jobs with_company(Job first);  // and others that can share its batch, claimed
  void run_claimed(Jobs jobs);
  void run(Jobs jobs);
  bool prepare_job(RunningJob& job);  // false: the job has failed
  void end_badly(RunningJob& job, const std::exception_ptr& thrown, bool deadline_passed = false);
  void end_drained(RunningJob& job, const std::exception_ptr& thrown, bool deadline_passed = false);
  void note_end(const RunningJob& job);
  PictureMaker& load_for(const Jobs& jobs);
  void run_alone(std::unique_ptr<RunningJob> job, PictureMaker& maker);
  void run_together(Jobs& jobs, PictureMaker& maker);
  std::shared_future<EncodedImage> encode(const std::shared_ptr<const UnsavedImage>& image);
  void save(RunningJob& job, const ResolvedRequest& resolved, const Picture& picture, GenerationRecord record);
  void preview(RunningJob& job, SmallPreview preview, const StepDone& step);
  void complete(std::unique_ptr<RunningJob> job, const PhaseTimes& times, int64_t peak_bytes);  // after its images are saved
  bool should_stop(const Jobs& jobs);
  void load_and_unload();
  void note_models();
  void note_models_now_and_then();

  // Texts, in worker_text.cpp: prompts that are rewritten, alone or for an image, and descriptions of images. The language model
  // is in memory on the worker's terms: it makes room for itself among the models of the keeper, and leaves before images are
  // made.
  void run_text(RunningJob& job);
  void rewrite(RunningJob& job, PreparedRun& prepared);
  Rewriter& rewriter_for(const RequestSpec& spec, const ModelFiles& model, bool offline);
  bool text_fits_beside_training(const Job& job);

  // Training, in worker_training.cpp. It holds the lane; jobs with "preempt" interrupt it.
  void run_training(Job job);
  std::optional<Job> preempting_job();  // the first that waits
  bool fits_beside_training();
  void run_preempting(const std::function<bool()>& ends);

  const AppContext& context_;
  Settings defaults_;
  JobQueue& queue_;
  WorkerOptions options_;
  ModelKeeper keeper_;
  FoundModels found_;
  std::unique_ptr<Rewriter> rewriter_;  // that was used last; null: none
  std::string rewriter_key_;
  std::chrono::steady_clock::time_point had_company_ = {};  // when jobs ran together last
  std::chrono::steady_clock::time_point noted_models_ = {};
  bool used_models_ = false;       // since they were noted
  uint64_t seen_submissions_ = 0;  // when no job with "preempt" waited last
  std::chrono::steady_clock::time_point seen_none_ = {};
  std::atomic<bool> stopping_ = false, unload_ = false, forget_ = false;
  mutable std::mutex mutex_;  // guards state_, totals_, load_, worked_
  std::condition_variable stopped_;
  WorkerState state_;
  WorkerTotals totals_;
  std::optional<std::string> load_;
  bool worked_ = false;  // no job is held any more
  UnreturnedJobs unreturned_;
  std::shared_ptr<std::atomic<int>> encoding_ = std::make_shared<std::atomic<int>>(0);  // images that are being encoded now
  std::optional<Saver> saver_, previews_;
  std::jthread thread_, leases_;
};

}  // namespace flux2
