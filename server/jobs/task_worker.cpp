#include "server/jobs/task_worker.h"

#include <fmt/format.h>

#include <utility>

#include "base/start_thread.h"
#include "server/jobs/job_error.h"
#include "server/jobs/patiently.h"
#include "server/store/ids.h"

namespace flux2 {

namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(100);  // whether a job was cancelled
constexpr auto kTellEvery = std::chrono::milliseconds(250);
constexpr auto kStoreEvery = std::chrono::seconds(1);
constexpr auto kRenewEvery = std::chrono::seconds(5);
constexpr auto kLookForWork = std::chrono::milliseconds(1000);

}  // namespace

RunningTask::RunningTask(JobQueue& queue, Job job, const AppContext& context, const std::atomic<bool>& stopping)
    : queue_(queue), job_(std::move(job)), context_(context), stopping_(stopping) {
  if (job_.result.is_object() && job_.result.contains("warnings")) warnings_ = job_.result["warnings"];
  context_.log = Log([this, log = context.log](LogLevel level, const std::string& text) {
    if (level >= LogLevel::Warning) {
      const std::lock_guard lock(mutex_);
      warnings_.push_back(text);
    } else {
      log.debug("job {}: {}", job_.id, text);
    }
  });
}

bool RunningTask::should_stop() {
  if (stopping_) return true;
  const std::lock_guard lock(mutex_);
  if (const auto now = Clock::now(); !cancel_ && now - asked_ >= kLookEvery) {
    asked_ = now;
    cancel_ = queue_.store().cancel_requested(job_.id);
  }
  return cancel_;
}

void RunningTask::tell(const std::string& phase, double progress, const std::string& message) {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  const bool news = phase != job_.phase;
  if (!news && now - told_ < kTellEvery) return;
  told_ = now;
  job_.phase = phase;
  job_.progress = progress;
  job_.message = message;
  queue_.events().publish_progress("progress",
                                   {{"job_id", "job_" + job_.id},
                                    {"phase", phase},
                                    {"step", 0},
                                    {"steps", 0},
                                    {"progress", progress},
                                    {"eta_s", nullptr},
                                    {"message", message}},
                                   job_.id);
  if (!news && now - stored_ < kStoreEvery) return;
  stored_ = now;
  if (!queue_.store().set_progress(job_)) cancel_ = true;  // the lease is lost: another worker has the job
}

void RunningTask::set_result(Json result) {
  const std::lock_guard lock(mutex_);
  result_ = std::move(result);
}

void RunningTask::keep(const char* name, Json value) {
  const std::lock_guard lock(mutex_);
  if (!job_.resolved.is_object()) job_.resolved = Json::object();
  job_.resolved[name] = std::move(value);
}

TaskWorker::TaskWorker(const AppContext& context, JobQueue& queue, Options options)
    : context_(context), queue_(queue), options_(std::move(options)) {}

void TaskWorker::add(const std::string& kind, Task task) { tasks_[kind] = std::move(task); }

void TaskWorker::start() {
  for (int i = 0; i < options_.threads; ++i) threads_.push_back(start_thread("downloads and conversions", [this] { work(); }));
  threads_.push_back(start_thread("the leases of downloads and conversions", [this] { keep_leases(); }));
}

void TaskWorker::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  news_.notify_all();
  threads_.clear();  // joins them
}

void TaskWorker::wake() {
  {
    const std::lock_guard lock(mutex_);
    ++woken_;
  }
  news_.notify_all();
}

void TaskWorker::work() {
  uint64_t seen = 0;
  while (!stopping_) {
    try {
      {
        const std::lock_guard lock(mutex_);
        seen = woken_;
      }
      unreturned_.give_back(queue_, options_.name);
      if (auto job = queue_.store().claim(options_.lane, options_.name, {}, now_ms())) {
        run(std::move(*job));
        continue;
      }
      // Jobs that other processes submit are found a little later.
      std::unique_lock lock(mutex_);
      news_.wait_for(lock, kLookForWork, [&] { return stopping_ || woken_ != seen; });
    } catch (const std::exception& e) {  // the store failed: a full disk, say
      context_.log.warn("a worker of the lane {} waits a second: {}", options_.lane, e.what());
      std::unique_lock lock(mutex_);
      news_.wait_for(lock, std::chrono::seconds(1), [this] { return stopping_.load(); });
    }
  }
}

// A job whose end cannot be stored, because the database is away, goes back to the queue as soon as that is possible.
void TaskWorker::run(Job job) {
  const std::string id = job.id;
  {
    const std::lock_guard lock(mutex_);
    running_.push_back(id);
  }
  bool ended = false;
  try {
    run_to_its_end(std::move(job));
    ended = true;
  } catch (const std::exception& e) {
    context_.log.warn("job {} goes back to the queue: {}", id, e.what());
  }
  if (!ended) unreturned_.add(id);
  std::unique_lock lock(mutex_);
  std::erase(running_, id);
  // It would be claimed again at once, and perhaps again and again.
  if (!ended) news_.wait_for(lock, std::chrono::seconds(1), [this] { return stopping_.load(); });
}

void TaskWorker::run_to_its_end(Job job) {
  queue_.started(job);
  RunningTask task(queue_, std::move(job), context_, stopping_);
  Job& ended = task.job_;
  try {
    const auto found = tasks_.find(ended.kind);
    if (found == tasks_.end()) fail(ErrorCode::InvalidArgument, "this worker cannot run jobs of the kind {}", ended.kind);
    found->second(task);
    ended.state = task.end_state_;
    if (ended.state == "completed") ended.progress = 1;
  } catch (const DatabaseAway&) {  // not the fault of the job
    throw;
  } catch (...) {
    const JobError error = job_error_of(std::current_exception());
    bool cancelled = false;
    {
      const std::lock_guard lock(task.mutex_);
      cancelled = task.cancel_;
    }
    if (error.cancelled && stopping_ && !cancelled) {
      queue_.give_back(ended.id, ended.worker);
      return;
    }
    ended.state = error.cancelled ? "cancelled" : "failed";
    if (!error.cancelled) {
      ended.error = {{"code", error.code}, {"message", error.message}, {"hint", error.hint}};
      context_.log.warn("job {} failed: {}", ended.id, error.message);
    }
  }
  ended.result = task.result_;
  ended.result["warnings"] = task.warnings_;
  ended.finished = now_ms();
  const auto stopping = [this] { return stopping_.load(); };
  if (patiently([&] { return queue_.store().finish(ended); }, stopping)) queue_.finished(ended);
}

void TaskWorker::keep_leases() {
  std::unique_lock lock(mutex_);
  while (!news_.wait_for(lock, kRenewEvery, [this] { return stopping_.load(); })) {
    const std::vector<std::string> running = running_;
    lock.unlock();
    try {
      queue_.store().renew(options_.name, unreturned_.with(running), now_ms());
    } catch (const std::exception& e) {
      context_.log.warn("the leases of running jobs were not renewed: {}", e.what());
    }
    lock.lock();
  }
}

}  // namespace flux2
