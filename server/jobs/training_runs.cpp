#include "server/jobs/training_runs.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/training_plan.h"
#include "base/path_exists.h"
#include "base/text.h"
#include "server/http/errors.h"
#include "server/jobs/training_job.h"
#include "server/jobs/tried_adapters.h"
#include "server/store/ids.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

constexpr int kMostRevivals = 3;  // without a step in between: a run that kills its server is not tried for ever
constexpr int64_t kQueuedSoonMs = 60'000;
constexpr double kBytesPerGib = 1 << 30;

HttpError run_is_wrong(const Run& run, const char* what) {
  return {409, "wrong_state", fmt::format("the run is {}; it cannot be {}", run.state, what)};
}

// A link keeps the file when retention removes the checkpoint.
void link_file(const fs::path& from, const fs::path& to) {
  std::error_code failure;
  fs::create_directories(to.parent_path(), failure);
  fs::remove(to, failure);
  fs::create_hard_link(from, to, failure);
  if (failure) fs::copy_file(from, to, fs::copy_options::overwrite_existing, failure);
  if (failure) fail(ErrorCode::CannotWrite, "cannot copy the checkpoint: {}", failure.message());
}

Json forecast_json(const TrainingForecast& f, Json warnings) {
  Json buckets = Json::array();
  for (const auto& bucket : f.buckets)
    buckets.push_back({{"width", bucket.size.width}, {"height", bucket.size.height}, {"count", bucket.images}});
  const double gib = static_cast<double>(f.memory.peak()) / kBytesPerGib;
  return {{"items", f.images},
          {"batches_per_epoch", f.batches},
          {"steps", f.steps},
          {"buckets", buckets},
          {"device_gib", f.memory.on_host ? Json(nullptr) : Json(gib)},
          {"host_gib", f.memory.on_host ? Json(gib) : Json(nullptr)},
          {"fits", f.memory.fits()},
          {"s_per_step", f.seconds_per_step},
          {"eta_s", f.seconds()},
          {"warnings", std::move(warnings)}};
}

}  // namespace

void check_action(const Run& run, RunAction action, bool has_job) {
  const bool works = run.is_active() || (run.state == "paused" && has_job);
  switch (action) {
    case RunAction::Pause:
      if (!works) throw run_is_wrong(run, "paused");
      break;
    case RunAction::Resume:
      if (run.state == "paused" && has_job)
        throw HttpError(409, "wrong_state", "the run waits for another job and continues by itself");
      if (run.state != "paused" && run.state != "stopped" && run.state != "failed") throw run_is_wrong(run, "resumed");
      break;
    case RunAction::Stop:
      if (!works && run.state != "paused") throw run_is_wrong(run, "stopped");
      break;
    case RunAction::Change:
      if (run.state == "completed") throw run_is_wrong(run, "changed");
      break;
  }
}

Settings TrainingRuns::settings_of(const Json& stored) const {
  SettingLayer layer;
  if (stored["model"].is_string()) {
    layer["model"] = {{stored["model"].get<std::string>()}, "model"};
    layer["model"].names_only = true;
  }
  return defaults_.with(std::move(layer));
}

Json TrainingRuns::forecast(const TrainingRequest& request) {
  const std::lock_guard lock(forecasting_);
  struct Scratch {
    fs::path folder;
    ~Scratch() {
      std::error_code ignored;
      fs::remove_all(folder, ignored);
    }
  } scratch{queue_.assets().folder() / "training" / ("forecast-" + new_id())};
  Json warnings = Json::array();
  AppContext context = context_;
  context.log = Log([&](LogLevel level, const std::string& text) {
    if (level >= LogLevel::Warning && std::find(warnings.begin(), warnings.end(), Json(text)) == warnings.end())
      warnings.push_back(text);
  });
  write_training_dataset(request, scratch.folder, queue_.assets(), allowed_, context);
  const GivenTrainOptions given = given_train_options(request.stored, request.name, scratch.folder);
  const TrainingForecast forecast = plan_training(training_request(settings_of(request.stored)), given, context);
  return forecast_json(forecast, std::move(warnings));
}

Run TrainingRuns::create(const TrainingRequest& request) {
  const std::lock_guard lock(changing_);
  const auto taken = [&] {
    HttpError error(409, "name_taken", fmt::format("another training run has the name {}", printable(request.name)), "name");
    error.hint = "choose another name";
    return error;
  };
  if (store_.find(request.name)) throw taken();
  Run run;
  run.id = new_id();
  run.name = request.name;
  run.request = request.stored;
  run.folder = "training/run_" + run.id;
  run.created = now_ms();
  const fs::path folder = folder_of(run);
  try {
    write_training_dataset(request, folder, queue_.assets(), allowed_, context_);
    // Mistakes in the combination of options are found now, not when it is the turn.
    TrainOptions options = resolve_train_options(given_train_options(run.request, run.name, folder), 3072);
    check_train_options(options);
    run.steps = options.max_train_epochs ? 0 : options.max_train_steps;
    store_.insert(run);
    try {
      queue_job(run);
    } catch (...) {  // a full queue, say: the client may send the same request later
      store_.remove(run.id);
      throw;
    }
  } catch (const Error& e) {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
    if (e.code() == ErrorCode::Refused) throw taken();
    throw;
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
    throw;
  }
  queue_.events().publish("train.state", {{"run", run_to_json(run)}}, run.job);
  return run;
}

void TrainingRuns::queue_job(Run& run) {
  const auto inserted =
      queue_.submit({.request = {{"kind", "train"}, {"run", run.id}, {"name", run.name}}, .kind = "train", .lane = "gpu"});
  run.job = inserted.job.id;
  store_.set_job(run.id, run.job);
}

// Nobody waits for an answer: if the queue is full, revive() tries again later.
void TrainingRuns::queue_again(Run& run) {
  try {
    queue_job(run);
  } catch (const HttpError& e) {
    if (e.status != 429) throw;
    context_.log.info("training run {} waits for a place in the queue", run.name);
  }
}

bool TrainingRuns::has_job(const Run& run) {
  const auto job = run.job.empty() ? std::nullopt : queue_.store().get(run.job);
  return job && !job->is_final();
}

// A job may have ended without its run: it was cancelled while it waited, or its server was killed.
Run TrainingRuns::settled(Run run) {
  if (!run.is_active() && run.state != "paused") return run;
  if (run.job.empty()) {  // whoever wanted to queue it has ended
    if (run.is_active() && now_ms() - run.created > kQueuedSoonMs) queue_again(run);
    return run;
  }
  const auto job = queue_.store().get(run.job);
  if (!job || !job->is_final()) return run;
  run = store_.get(run.id).value_or(run);  // the run is stored before its job ends, so now it must be as it stays
  const bool interrupted = job->state == "failed" && job->error.is_object() && job->error.value("code", "") == "interrupted";
  if (run.job != job->id || (!run.is_active() && !(run.state == "paused" && interrupted))) return run;
  if (interrupted && run.wish.empty()) {
    const int64_t last = run.figures.value("revived_at", int64_t{-1});
    const int times = last == run.step ? run.figures.value("revivals", 0) + 1 : 1;
    run.figures["revived_at"] = run.step;
    run.figures["revivals"] = times;
    if (times <= kMostRevivals) {
      if (!store_.replace_job(run.id, run.job, "")) return get(run.id);  // another process is quicker
      run.state = "preparing";
      run.job.clear();
      store_.save(run);
      queue_again(run);
      queue_.events().publish("train.state", {{"run", run_to_json(run)}}, run.job);
      return run;
    }
  }
  run.state = interrupted && run.wish.empty() ? "failed" : run.wish == "pause" ? "paused" : "stopped";
  if (job->state == "failed") run.error = job->error;
  if (run.state != "paused") run.finished = now_ms();
  store_.set_wish(run.id, "");
  store_.save(run);
  queue_.events().publish("train.state", {{"run", run_to_json(run)}}, run.job);
  return run;
}

void TrainingRuns::revive() {
  const std::lock_guard lock(changing_);
  for (Run& run : store_.unfinished()) settled(std::move(run));
}

Run TrainingRuns::get(const std::string& id) {
  const auto run = id.empty() ? std::nullopt : store_.get(id);
  if (!run) throw HttpError(404, "not_found", "training run not found");
  return *run;
}

Run TrainingRuns::pause(const std::string& id) {
  const std::lock_guard lock(changing_);
  const Run run = settled(get(id));
  check_action(run, RunAction::Pause, has_job(run));
  store_.set_wish(id, "pause");
  if (const auto job = queue_.store().get(run.job); job && job->state == "queued") queue_.cancel(run.job);
  return settled(get(id));
}

Run TrainingRuns::stop(const std::string& id, bool save) {
  const std::lock_guard lock(changing_);
  Run run = settled(get(id));
  check_action(run, RunAction::Stop, has_job(run));
  if (!has_job(run)) {
    run.state = "stopped";
    run.finished = now_ms();
    store_.save(run);
    queue_.events().publish("train.state", {{"run", run_to_json(run)}}, run.job);
    return run;
  }
  store_.set_wish(id, save ? "stop" : "drop");
  if (const auto job = queue_.store().get(run.job); job && job->state == "queued") queue_.cancel(run.job);
  return settled(get(id));
}

Run TrainingRuns::resume(const std::string& id) {
  const std::lock_guard lock(changing_);
  Run run = settled(get(id));
  check_action(run, RunAction::Resume, has_job(run));
  const Run before = run;
  store_.set_wish(id, "");
  run.state = "preparing";
  run.error = nullptr;
  run.finished = 0;
  run.figures.erase("revivals");
  store_.save(run);
  try {
    queue_job(run);
  } catch (...) {
    store_.save(before);
    throw;
  }
  queue_.events().publish("train.state", {{"run", run_to_json(run)}}, run.job);
  return get(id);
}

Run TrainingRuns::change(const std::string& id, const Json& options) {
  const std::lock_guard lock(changing_);
  const Run run = settled(get(id));
  check_action(run, RunAction::Change, has_job(run));
  Json request = run.request;
  request["options"] = changed_options(request["options"], options);
  check_train_options(resolve_train_options(given_train_options(request, run.name, folder_of(run)), 3072));
  store_.set_request(id, request);
  // A run that trains now saves its state and goes on with the new values.
  if (has_job(run) && run.wish.empty()) store_.set_wish(id, "restart");
  return get(id);
}

StoredCheckpoint TrainingRuns::checkpoint_at(const Run& run, int64_t step) {
  // A step may have several files: an average of the weights, parts beside the adapter. The plain one has the shortest name.
  std::optional<StoredCheckpoint> found;
  for (const StoredCheckpoint& one : store_.checkpoints(run.id))
    if (one.step == step && path_exists(folder_of(run) / one.path) &&
        (!found || fs::path(one.path).filename().string().size() < fs::path(found->path).filename().string().size()))
      found = one;
  if (!found) throw HttpError(404, "not_found", fmt::format("the run has no checkpoint at step {}", step));
  return *found;
}

std::string TrainingRuns::try_checkpoint(const Run& run, int64_t step) {
  link_file(folder_of(run) / checkpoint_at(run, step).path, tried_file(queue_.assets().folder(), run.name, step));
  return tried_name(run.name, step);
}

StoredCheckpoint TrainingRuns::keep_checkpoint(const Run& run, int64_t step) {
  StoredCheckpoint checkpoint = checkpoint_at(run, step);
  if (checkpoint.kept) return checkpoint;
  const std::string path = "kept/" + fs::path(checkpoint.path).filename().string();
  link_file(folder_of(run) / checkpoint.path, folder_of(run) / path);
  store_.remove_checkpoint(run.id, checkpoint.path);  // the first name may go, this one stays
  checkpoint.path = path;
  checkpoint.kept = true;
  store_.add_checkpoint(run.id, checkpoint);
  return checkpoint;
}

void TrainingRuns::remove_checkpoint(const Run& run, int64_t step) {
  checkpoint_at(run, step);
  std::error_code ignored;
  for (const StoredCheckpoint& one : store_.checkpoints(run.id)) {
    if (one.step != step) continue;
    store_.remove_checkpoint(run.id, one.path);
    fs::remove(folder_of(run) / one.path, ignored);
    if (one.kept) fs::remove(folder_of(run) / fs::path(one.path).filename(), ignored);
  }
  fs::remove(tried_file(queue_.assets().folder(), run.name, step), ignored);
}

Json TrainingRuns::checkpoints(const Run& run) {
  Json list = Json::array();
  for (const StoredCheckpoint& one : store_.checkpoints(run.id)) {
    const bool tried = path_exists(tried_file(queue_.assets().folder(), run.name, one.step));
    list.push_back({{"step", one.step},
                    {"epoch", one.epoch},
                    {"path", one.path},
                    {"bytes", one.bytes},
                    {"sha256", one.sha256},
                    {"kept", one.kept},
                    {"adapter", tried ? Json(tried_name(run.name, one.step)) : Json(nullptr)},
                    {"model_key", nullptr}});
  }
  return list;
}

}  // namespace flux2
