#include "server/jobs/training_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/mapped_file.h"
#include "server/jobs/job_error.h"
#include "server/jobs/patiently.h"
#include "server/jobs/training_request.h"
#include "server/store/ids.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

constexpr auto kWishesEvery = std::chrono::milliseconds(100);
constexpr auto kFlushEvery = std::chrono::milliseconds(500);

double number_or_nan(const Json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

int64_t count_in_event(const Json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

Json known_number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

double learning_rate_in(const Json& event) {
  const auto found = event.find("lr");
  if (found == event.end() || !found->is_object() || found->empty()) return std::numeric_limits<double>::quiet_NaN();
  return found->begin().value().get<double>();
}

Json time_or_null(int64_t ms) { return ms == 0 ? Json(nullptr) : Json(rfc3339(ms)); }

}  // namespace

Json run_to_json(const Run& run) {
  Json json = {{"id", "run_" + run.id},
               {"name", run.name},
               {"project_id", nullptr},
               {"state", run.state},
               {"model", run.request["model"]},
               {"preset", run.request["preset"]},
               {"step", run.step},
               {"steps", run.steps}};
  for (const char* key : {"epoch", "epochs", "loss", "loss_avg", "lr", "it_per_s", "eta_s", "device_gib"})
    json[key] = run.figures.is_object() && run.figures.contains(key) ? run.figures[key] : Json(nullptr);
  json["folder"] = run.folder;
  json["options"] = run.request["options"];
  json["created_at"] = time_or_null(run.created);
  json["started_at"] = time_or_null(run.started);
  json["finished_at"] = time_or_null(run.finished);
  json["error"] = run.error;
  json["job_id"] = run.job.empty() ? Json(nullptr) : Json("job_" + run.job);
  return json;
}

TrainingJob::TrainingJob(JobQueue& queue, RunStore& runs, Job job, const AppContext& context, const Settings& defaults,
                         const AllowedFolders& allowed, TrainingHelp help)
    : queue_(queue),
      runs_(runs),
      job_(std::move(job)),
      context_(context),
      defaults_(defaults),
      allowed_(allowed),
      help_(std::move(help)) {
  context_.log = Log([this, outer = context.log](LogLevel level, const std::string& text) {
    if (level >= LogLevel::Warning) {
      const std::lock_guard lock(mutex_);
      warnings_.push_back(text);
    } else if (level == LogLevel::Debug) {
      outer.debug("{}", text);
    } else {
      outer.info("{}", text);
    }
  });
}

void TrainingJob::set_state(const std::string& state) {
  if (lost_) return;
  run_.state = state;
  try {
    runs_.save(run_);
  } catch (const Error& e) {  // training goes on; the state is stored with the next figures
    context_.log.info("the state of a training run was not stored: {}", e.what());
  }
  queue_.events().publish("train.state", {{"run", run_to_json(run_)}}, job_.id);
}

void TrainingJob::run() {
  try {
    const auto found = runs_.get(job_.request.value("run", std::string()));
    if (!found) flux2::fail(ErrorCode::NotFound, "the training run of this job does not exist");
    run_ = *found;
    run_.job = job_.id;
    folder_ = queue_.assets().folder() / run_.folder;
    // The run has ended, and only the end of its job was not stored.
    if (run_.state == "completed" || run_.state == "stopped" || run_.state == "failed") {
      const std::string state = run_.state;
      job_.error = run_.error;
      return finish(state == "stopped" ? "cancelled" : state, state);
    }
    run_.error = nullptr;
    run_.finished = 0;
    if (run_.started == 0) run_.started = now_ms();
    set_state("preparing");
    for (;;) {
      Ask why = Ask::None;
      try {
        const TrainingResult result = train_once();
        if (result.end.reason == RunEndReason::Nan)
          throw Error(ErrorCode::InvalidArgument, "training stopped: " + result.end.message);
        if (result.end.reason == RunEndReason::Time) return finish("completed", "stopped");
        if (result.end.reason != RunEndReason::Interrupted) return finish("completed", "completed");
      } catch (const Error& e) {
        if (e.code() != ErrorCode::Cancelled) throw;  // before the first step; later, the run ends with a result
      }
      {
        const std::lock_guard lock(mutex_);
        why = std::exchange(ask_, Ask::None);
      }
      // Nothing any more: the job that wanted to run was cancelled, say. The loop goes on.
      if (why != Ask::None && ended(why)) return;
    }
  } catch (const DatabaseAway& e) {  // not the fault of the run
    context_.log.info("the database of a training run is away: {}", e.what());
  } catch (...) {
    fail(std::current_exception());
  }
}

bool TrainingJob::ended(Ask why) {
  const auto at_step_text = [&](const char* word) { return fmt::format("{} at step {}", word, run_.step); };
  switch (why) {
    case Ask::Others:
      set_state("paused");
      help_.run_others([this] { return asked(true) > Ask::Restart; });
      {
        const std::lock_guard lock(mutex_);
        if (ask_ <= Ask::Restart) ask_ = Ask::None;
        why = std::exchange(ask_, Ask::None);
      }
      if (why != Ask::None) return ended(why);
      set_state("preparing");
      return false;
    case Ask::Restart:
      runs_.set_wish(run_.id, "");
      run_.request = runs_.get(run_.id).value_or(run_).request;
      set_state("preparing");
      return false;
    case Ask::Pause:
      job_.message = at_step_text("paused");
      finish("cancelled", "paused");
      return true;
    case Ask::Stop:
    case Ask::Drop:
      job_.message = at_step_text("stopped");
      finish("cancelled", "stopped");
      return true;
    case Ask::Shutdown:
      set_state("preparing");
      queue_.give_back(job_.id, job_.worker);
      over_ = true;
      return true;
    case Ask::Lost:
    case Ask::None: break;
  }
  return true;
}

TrainingResult TrainingJob::train_once() {
  trains_ = false;
  const GivenTrainOptions given = given_train_options(run_.request, run_.name, folder_);
  const fs::path dataset = given.at("dataset_config").back();
  check_dataset_paths(dataset_at(dataset, nullptr), dataset, allowed_);  // it may have changed since the run was made
  Settings settings = defaults_;
  if (run_.request["model"].is_string()) {
    SettingLayer layer;
    layer["model"] = {{run_.request["model"].get<std::string>()}, "model"};
    layer["model"].names_only = true;
    settings = defaults_.with(std::move(layer));
  }
  TrainingResult result = train(training_request(settings), given, context_, front_end());
  flush();
  return result;
}

TrainingFrontEnd TrainingJob::front_end() {
  TrainingFrontEnd front;
  front.progress.report = [this](Phase phase, int step, int steps) { tell_phase(phase, step, steps); };
  // Sample images are made between steps: only what ends the run ends them.
  front.progress.cancelled = [this] { return asked(false) > (trains_ ? Ask::Pause : Ask::None); };
  front.before_block = [this] {
    if (help_.stopping() && asked(false) == Ask::Shutdown) flux2::fail(ErrorCode::Cancelled, "the server is shutting down");
  };
  front.on_event = [this](const Json& event) { at(event); };
  front.stop = [this] { return after_step(); };
  return front;
}

TrainingJob::Ask TrainingJob::asked(bool at_step) {
  const std::lock_guard lock(mutex_);
  if (ask_ == Ask::Shutdown || ask_ == Ask::Lost) return ask_;
  if (lost_) return ask_ = Ask::Lost;
  if (help_.stopping()) return ask_ = Ask::Shutdown;
  if (Clock::now() - looked_ < kWishesEvery) return ask_;
  looked_ = Clock::now();
  try {
    const std::string wish = runs_.wish(run_.id);
    if (wish == "drop") ask_ = Ask::Drop;
    else if (wish == "stop" || queue_.store().cancel_requested(job_.id)) ask_ = wish == "pause" ? Ask::Pause : Ask::Stop;
    else if (wish == "pause") ask_ = Ask::Pause;
    else if (wish == "restart") ask_ = Ask::Restart;
    else if ((at_step || !trains_) && help_.others_wait()) ask_ = Ask::Others;
    else ask_ = Ask::None;
  } catch (const Error& e) {  // the store may be back at the next step
    context_.log.info("the requests to a training run could not be read: {}", e.what());
  }
  return ask_;
}

StopRequest TrainingJob::after_step() {
  switch (asked(true)) {
    case Ask::None: return StopRequest::None;
    case Ask::Lost:
    case Ask::Drop: return StopRequest::Drop;
    case Ask::Others:
      if (help_.fits_beside()) {
        make_way();
        return after_step();
      }
      break;
    default: break;
  }
  flush();
  set_state("saving");
  return StopRequest::End;
}

void TrainingJob::make_way() {
  flush();
  job_.message = fmt::format("paused at step {} for another job", run_.step);
  store_progress();
  set_state("paused");
  {
    const std::lock_guard lock(mutex_);
    ask_ = Ask::None;
  }
  help_.run_others([this] { return asked(true) > Ask::Others; });
  {
    const std::lock_guard lock(mutex_);
    if (ask_ == Ask::Others) ask_ = Ask::None;
  }
  set_state("running");
}

void TrainingJob::tell_phase(Phase phase, int step, int steps) {
  const std::lock_guard lock(mutex_);
  if (trains_ || lost_) return;
  const bool caches = phase == Phase::EncodeImages || phase == Phase::EncodeReferences || phase == Phase::Text;
  const std::string state = caches ? "caching" : "preparing";
  if (run_.state != state) set_state(state);
  if (Clock::now() - flushed_ < kFlushEvery) return;
  flushed_ = Clock::now();
  job_.phase = name_of(phase);
  job_.message = steps > 0 ? fmt::format("{} {}/{}", state, step, steps) : state;
  store_progress();
}

void TrainingJob::at(const Json& event) {
  if (lost_) return;
  const std::string kind = event.value("event", std::string());
  try {
    if (kind == "start") at_start(event);
    if (kind == "step") at_step(event);
    if (kind == "sample") at_sample(event);
    if (kind == "checkpoint") at_checkpoint(event);
    if (kind == "removed") runs_.remove_checkpoint(run_.id, event.value("file", std::string()));
  } catch (const Error& e) {  // training is worth more than its rows
    context_.log.warn("an event of the run was not stored: {}", e.what());
  }
}

void TrainingJob::at_start(const Json& event) {
  trains_ = true;
  run_.steps = count_in_event(event, "steps");
  run_.step = count_in_event(event, "resumed_step");
  run_.figures["epochs"] = count_in_event(event, "epochs");
  set_state("running");
  runs_.drop_metrics_after(run_.id, run_.step);
}

void TrainingJob::at_step(const Json& event) {
  RunMetric metric{.step = count_in_event(event, "step"),
                   .loss = number_or_nan(event, "loss"),
                   .loss_avg = number_or_nan(event, "loss_avg"),
                   .lr = learning_rate_in(event),
                   .grad_norm = number_or_nan(event, "grad_norm"),
                   .it_per_s = number_or_nan(event, "it_per_s"),
                   .device_gib = number_or_nan(event, "device_gib")};
  run_.step = metric.step;
  run_.figures["epoch"] = count_in_event(event, "epoch");
  run_.figures["loss"] = known_number(metric.loss);
  run_.figures["loss_avg"] = known_number(metric.loss_avg);
  run_.figures["lr"] = known_number(metric.lr);
  run_.figures["it_per_s"] = known_number(metric.it_per_s);
  run_.figures["eta_s"] = known_number(number_or_nan(event, "eta_s"));
  run_.figures["device_gib"] = known_number(metric.device_gib);
  Json point = event;
  point.erase("event");
  points_.push_back(std::move(point));
  metrics_.push_back(metric);
  if (Clock::now() - flushed_ >= kFlushEvery) flush();
}

void TrainingJob::flush() {
  flushed_ = Clock::now();
  if (lost_ || metrics_.empty()) return;
  job_.phase = "train";
  job_.step = static_cast<int>(run_.step);
  job_.steps = static_cast<int>(run_.steps);
  job_.progress = run_.steps > 0 ? static_cast<double>(run_.step) / static_cast<double>(run_.steps) : 0;
  job_.message = fmt::format("step {}/{}, loss {:.4f}", run_.step, run_.steps, metrics_.back().loss_avg);
  try {
    runs_.add_metrics(run_.id, metrics_);
    metrics_.clear();
    runs_.save(run_);
  } catch (const Error& e) {  // training is worth more than its figures; they are stored later
    context_.log.info("the figures of a training run were not stored: {}", e.what());
  }
  queue_.events().publish_progress("train.metrics", {{"run_id", "run_" + run_.id}, {"points", points_}}, job_.id);
  points_ = Json::array();
  store_progress();
}

void TrainingJob::store_progress() {
  queue_.events().publish_progress("progress",
                                   {{"job_id", "job_" + job_.id},
                                    {"phase", job_.phase},
                                    {"step", job_.step},
                                    {"steps", job_.steps},
                                    {"progress", job_.progress},
                                    {"eta_s", run_.figures.value("eta_s", Json(nullptr))},
                                    {"message", job_.message}},
                                   job_.id);
  try {
    if (!queue_.store().set_progress(job_)) lost_ = true;
  } catch (const Error& e) {
    context_.log.info("the progress of a training run was not stored: {}", e.what());
  }
}

void TrainingJob::at_sample(const Json& event) {
  const auto file = MappedFile::open(folder_ / event.value("file", std::string()));
  Asset fields;
  fields.kind = "image";
  fields.job = job_.id;
  const Asset asset = queue_.assets().put(file->bytes(), fields);
  const StoredSample sample{.step = count_in_event(event, "step"),
                            .index = count_in_event(event, "index"),
                            .asset = asset.id,
                            .prompt = event.value("prompt", std::string()),
                            .seed = event.value("seed", uint64_t{0})};
  runs_.add_sample(run_.id, sample);
  queue_.events().publish("train.sample",
                          {{"run_id", "run_" + run_.id},
                           {"step", sample.step},
                           {"index", sample.index},
                           {"asset_id", "ast_" + asset.id},
                           {"url", fmt::format("/api/v1/assets/ast_{}/file", asset.id)}},
                          job_.id);
}

void TrainingJob::at_checkpoint(const Json& event) {
  const StoredCheckpoint checkpoint{.step = count_in_event(event, "step"),
                                    .epoch = count_in_event(event, "epoch"),
                                    .path = event.value("file", std::string()),
                                    .sha256 = event.value("sha256", std::string()),
                                    .bytes = count_in_event(event, "bytes")};
  runs_.add_checkpoint(run_.id, checkpoint);
  queue_.events().publish("train.checkpoint",
                          {{"run_id", "run_" + run_.id}, {"step", checkpoint.step}, {"path", checkpoint.path}}, job_.id);
}

void TrainingJob::finish(const std::string& state, const std::string& run_state) {
  if (lost_) return;
  job_.state = state;
  job_.finished = now_ms();
  job_.result = {{"warnings", warnings_},
                 {"timings_ms", {{"total", job_.finished - job_.started}}},
                 {"run_id", run_.id.empty() ? Json(nullptr) : Json("run_" + run_.id)}};
  // The run first: whoever sees a job that has ended finds its run as it shall stay.
  if (!run_.id.empty()) {
    run_.finished = run_state == "paused" ? 0 : job_.finished;
    run_.state = run_state;
    patiently([&] { runs_.save(run_), runs_.set_wish(run_.id, ""); }, help_.stopping);
    run_ended_ = true;
    set_state(run_state);
  }
  const bool held = patiently([&] { return queue_.store().finish(job_); }, help_.stopping);
  over_ = true;
  if (held) queue_.finished(job_);
}

void TrainingJob::fail(std::exception_ptr thrown) {
  try {
    const JobError error = job_error_of(thrown);
    // The run has ended as it should, and only its job has not: the next worker ends that.
    if (run_ended_) return context_.log.info("the end of a training job was not stored: {}", error.message);
    job_.error = run_.error = {{"code", error.code}, {"message", error.message}, {"hint", error.hint}};
    flush();
    finish("failed", "failed");
    context_.log.info("training run {} failed: {}", run_.name, error.message);
  } catch (const std::exception& e) {  // the store failed; the worker gives the job back later
    context_.log.info("the end of a training run was not stored: {}", e.what());
  }
}

}  // namespace flux2
