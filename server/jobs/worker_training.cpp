#include <algorithm>

#include "engine/forecast.h"
#include "rewrite/rewriter.h"
#include "server/jobs/job_error.h"
#include "server/jobs/job_kinds.h"
#include "server/jobs/job_settings.h"
#include "server/jobs/training_job.h"
#include "server/jobs/worker.h"
#include "server/store/ids.h"

namespace flux2 {

namespace {

constexpr auto kLookAgain = std::chrono::milliseconds(1000);  // for jobs that another process has submitted
constexpr auto kWaitForJob = std::chrono::milliseconds(50);

bool asks_to_preempt(const Job& job) { return job.kind != "train" && job.request.value("preempt", false); }

}  // namespace

void Worker::run_training(Job job) {
  const std::string id = job.id;
  {
    const std::lock_guard lock(mutex_);
    state_.jobs.push_back(id);
  }
  queue_.started(job);
  rewriter_.reset();
  keeper_.drop();  // training needs their memory
  note_models();
  std::string end;
  bool is_over = true;
  if (options_.runs) {
    TrainingJob training(queue_, *options_.runs, std::move(job), context_, defaults_, options_.allowed,
                         {.stopping = [this] { return stopping_.load(); },
                          .others_wait = [this] { return preempting_job().has_value(); },
                          .fits_beside = [this] { return fits_beside_training(); },
                          .run_others = [this](const std::function<bool()>& ends) { run_preempting(ends); }});
    training.run();
    is_over = training.is_over();
    if (is_over) end = training.job().state;
    else unreturned_.add(id);
  } else {
    RunningJob refused(queue_, std::move(job), context_);
    end_badly(refused, std::make_exception_ptr(Error(ErrorCode::InvalidArgument, "this worker does not train")));
    end = refused.job().state;
  }
  std::unique_lock lock(mutex_);
  std::erase(state_.jobs, id);
  if (end == "completed") ++totals_.completed;
  if (end == "cancelled") ++totals_.cancelled;
  if (end == "failed") ++totals_.failed;
  // It would be claimed again at once, and perhaps again and again.
  if (!is_over) stopped_.wait_for(lock, std::chrono::seconds(1), [this] { return stopping_.load(); });
}

std::optional<Job> Worker::preempting_job() {
  const uint64_t submissions = queue_.submissions();
  const auto now = std::chrono::steady_clock::now();
  if (submissions == seen_submissions_ && now - seen_none_ < kLookAgain) return std::nullopt;
  if (!queue_.store().paused()) {
    std::vector<Job> jobs = queue_.store().waiting("gpu");
    const auto found = std::find_if(jobs.begin(), jobs.end(), asks_to_preempt);
    if (found != jobs.end()) return std::move(*found);
  }
  seen_submissions_ = submissions;
  seen_none_ = now;
  return std::nullopt;
}

bool Worker::fits_beside_training() {
  const auto job = preempting_job();
  if (!job) return true;
  if (is_text_kind(job->kind)) return text_fits_beside_training(*job);
  AppContext quiet = context_;
  quiet.log = {};
  try {
    Settings settings = defaults_.with(settings_of_job(job->request, queue_.assets(), quiet));
    PromptLine line;
    line.prompt = job->request.value("prompt", std::string());
    const PreparedRun run = prepare(settings, {line}, task_of_kind(job->kind), quiet, &found_);
    EngineOptions options = engine_options(run.requests.front().spec, quiet);
    if (options.memory_limit != 0) return false;  // it is one of everything together, and training was planned with all of it
    const ResolvedRequest& first = run.requests.front();
    options.adapters = first.adapters;
    return forecast_memory(Engine(options), run.model, largest_pass(first.request, first.passes)).fits();
  } catch (const std::exception&) {
    return true;  // the job fails when it runs, and says why
  }
}

void Worker::run_preempting(const std::function<bool()>& ends) {
  auto last = std::chrono::steady_clock::now();
  while (!stopping_ && !ends()) {
    const auto next = preempting_job();
    auto claimed = next ? queue_.store().claim_one(next->id, options_.name, now_ms()) : std::nullopt;
    if (claimed) {
      Jobs jobs = with_company(std::move(*claimed));
      run_claimed(std::move(jobs));
      last = std::chrono::steady_clock::now();
      continue;
    }
    if (std::chrono::steady_clock::now() - last >= options_.preempt_wait) break;
    queue_.wait_for_work(kWaitForJob);
  }
  rewriter_.reset();
  keeper_.drop();
  note_models();
}

}  // namespace flux2
