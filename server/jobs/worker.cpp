#include "server/jobs/worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "app/prompt_rewriting.h"
#include "app/safety.h"
#include "base/start_thread.h"
#include "server/jobs/job_error.h"
#include "server/jobs/job_kinds.h"
#include "server/jobs/job_settings.h"
#include "server/store/ids.h"

namespace flux2 {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLeaseParts = 6;                           // a lease is renewed so often before it would end
constexpr auto kCompanyLasts = std::chrono::seconds(2);  // how long a worker expects more after a merged batch
constexpr auto kWriterStays = std::chrono::seconds(60);  // how long a language model waits for the next text
constexpr auto kIdlePoll = std::chrono::milliseconds(1000);
constexpr auto kNoteModels = std::chrono::milliseconds(1000);  // how often their memory is asked for while jobs run

PhaseTimes difference(const PhaseTimes& a, const PhaseTimes& b) {
  return {a.load - b.load, a.text - b.text, a.references - b.references, a.denoise - b.denoise, a.decode - b.decode};
}

void add(PhaseTimes& sum, const PhaseTimes& t) {
  sum.load += t.load, sum.text += t.text, sum.references += t.references, sum.denoise += t.denoise, sum.decode += t.decode;
}

LoadedModels loaded_keys(const WorkerState& state) {
  LoadedModels loaded;
  for (const ModelInMemory& model : state.models) loaded.keys.push_back(model.name);
  return loaded;
}

// How many images run together if nobody says so. Small images have little work for each step, so more of them share it: 16 of
// 64x64 took 15 % less processor time each than 4 (2 cores, pico). Large ones gain nothing and wait for each other.
int64_t usual_batch(const Json& request) {
  constexpr int64_t kLeast = 4, kMost = 16, kPixels = 1 << 20;
  const auto side = [&](const char* name) {
    return request.contains(name) && request[name].is_number_integer() ? request[name].get<int64_t>() : 0;
  };
  const int64_t pixels = side("width") * side("height");
  return pixels > 0 ? std::clamp(kPixels / pixels, kLeast, kMost) : kLeast;
}

int64_t images_of(const Json& request) {
  return request.contains("count") && request["count"].is_number_integer() ? request["count"].get<int64_t>() : 1;
}

void rethrow_if_away(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const DatabaseAway&) {
    throw;
  } catch (...) {  // anything else is the job's own end
  }
}

int64_t peak_on_device(const PictureMaker& maker) { return maker.engine().device().is_host() ? 0 : maker.peak_bytes(); }

}  // namespace

Worker::Worker(const AppContext& context, Settings defaults, JobQueue& queue, WorkerOptions options)
    : context_(context),
      defaults_(std::move(defaults)),
      queue_(queue),
      options_(std::move(options)),
      keeper_(context, options_.max_models) {}

Worker::~Worker() { stop(); }

void Worker::start() {
  if (options_.runs_jobs) {
    saver_.emplace();
    previews_.emplace(Saver::Limits{}, "encoding previews");
    thread_ = start_thread("the worker", [this] { work(); });
  }
  leases_ = start_thread("the worker's leases", [this] { keep_leases(); });
}

void Worker::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  queue_.wake();
  if (thread_.joinable()) thread_.join();
  {
    const std::lock_guard lock(mutex_);
    worked_ = true;  // until now leases were renewed: a store of images may be slow
  }
  stopped_.notify_all();
  if (leases_.joinable()) leases_.join();
}

WorkerState Worker::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

WorkerTotals Worker::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

void Worker::unload() {
  unload_ = true;
  queue_.wake();
}

void Worker::load(const std::string& model) {
  {
    const std::lock_guard lock(mutex_);
    load_ = model;
  }
  queue_.wake();
}

bool Worker::prepare_job(RunningJob& job) {
  try {
    const Json& request = job.job().request;
    Settings settings = defaults_.with(settings_of_job(request, queue_.assets(), job.context()));
    PromptLine line;
    line.prompt = request.value("prompt", std::string());
    PreparedRun prepared = prepare(settings, {line}, task_of_kind(job.job().kind), job.context(), &found_);
    if (wants_rewriting(prepared.requests.front())) rewrite(job, prepared);
    if (const auto& safety = job.context().safety) {
      const std::shared_ptr<void> release(nullptr, [&](void*) { safety->release(); });
      for (const ResolvedRequest& resolved : prepared.requests)
        safety->check_request(resolved, prepared.model, [&] { return stopping_ || job.cancel_requested(); });
    }
    job.set_prepared(std::move(prepared));
    return true;
  } catch (...) {
    end_badly(job, std::current_exception());
    return false;
  }
}

// A job whose end cannot be stored, because the database is away, must not stay with this worker for ever: it goes back to the
// queue as soon as that is possible.
void Worker::end_badly(RunningJob& job, const std::exception_ptr& thrown, bool deadline_passed) {
  try {
    if (job.is_over()) return unreturned_.add(job.job().id);  // its end could not be stored, or another worker has it
    rethrow_if_away(thrown);
    if (stopping_ && !job.cancel_requested()) job.give_back();
    else job.fail(thrown, deadline_passed);
  } catch (const std::exception& e) {
    context_.log.warn("job {} goes back to the queue: {}", job.job().id, e.what());
    unreturned_.add(job.job().id);
  }
}

// The same on the worker's thread, while images of the job may still be on their way. If one could not be saved, that is why the
// job ends.
void Worker::end_drained(RunningJob& job, const std::exception_ptr& thrown, bool deadline_passed) {
  previews_->drain(&job);
  const std::exception_ptr unsaved = saver_->drain(&job);
  end_badly(job, unsaved ? unsaved : thrown, !unsaved && deadline_passed);
}

// The next job, and those that can run with it.
Worker::Jobs Worker::claim() {
  auto first = queue_.store().claim("gpu", options_.name, loaded_keys(state()), now_ms());
  return first ? with_company(std::move(*first)) : Jobs();
}

Worker::Jobs Worker::with_company(Job first) {
  Jobs jobs;
  const std::string merge_key = first.merge_key;
  int64_t images = images_of(first.request);
  const int64_t limit = options_.max_batch > 0 ? options_.max_batch : usual_batch(first.request);
  jobs.push_back(std::make_unique<RunningJob>(queue_, std::move(first), context_));
  // Waiting pays only if requests come from several clients: one who waits for each answer would lose that time every time.
  bool waits = options_.batch_wait.count() > 0 && Clock::now() - had_company_ < kCompanyLasts;
  while (!merge_key.empty() && images < limit) {
    std::optional<Job> next;
    try {
      next = queue_.store().claim_like("gpu", merge_key, options_.name, now_ms());
    } catch (const Error&) {  // those that are claimed already must run or go back
      break;
    }
    if (next) {
      had_company_ = Clock::now();
      images += images_of(next->request);
      jobs.push_back(std::make_unique<RunningJob>(queue_, std::move(*next), context_));
    } else if (std::exchange(waits, false)) {
      queue_.wait_for_work(options_.batch_wait);
    } else {
      break;
    }
  }
  return jobs;
}

bool Worker::should_stop(const Jobs& jobs) {
  if (stopping_) return true;
  // One that was cancelled ends at once; the others go on. Its part of the batch is computed and thrown away.
  bool any = false;
  for (const auto& job : jobs) {
    if (job->is_over()) continue;
    if (job->cancel_requested() || saver_->has_failed(job.get())) {
      if (jobs.size() == 1) return true;
      end_drained(*job, std::make_exception_ptr(Error(ErrorCode::Cancelled, "stopped")));
    } else {
      any = true;
    }
  }
  return !any;
}

PictureMaker& Worker::load_for(const Jobs& jobs) {
  const PreparedRun& prepared = jobs.front()->prepared();
  const bool loads = !keeper_.has(prepared.requests.front().spec, prepared.model);
  const auto set_loading = [&](bool loading) {
    const std::lock_guard lock(mutex_);
    state_.loading = loading;
  };
  if (loads) queue_.events().publish("model.loading", {{"model", prepared.model.id}});
  set_loading(loads);
  Progress progress;
  progress.report = [&](Phase phase, int step, int steps) {
    for (const auto& job : jobs) job->tell(0, phase, step, steps);
  };
  progress.cancelled = [&] { return should_stop(jobs); };
  const PictureMaker* const last = keeper_.maker();
  PictureMaker& maker = keeper_.maker_for(prepared.requests.front().spec, prepared.model, prepared.requests, progress);
  set_loading(false);
  used_models_ = true;
  if (loads || &maker != last) note_models();
  if (loads) queue_.events().publish("model.loaded", {{"model", prepared.model.id}, {"vram", peak_on_device(maker)}});
  return maker;
}

// What is in memory now. Models that had to leave are told to listeners.
void Worker::note_models() {
  used_models_ = false;
  noted_models_ = Clock::now();
  std::vector<ModelInMemory> models;
  MemorySize memory;
  for (const PictureMaker* maker : keeper_.makers()) {
    const Device& device = maker->engine().device();
    if (!device.is_host()) memory = device.memory();
    models.push_back({.name = maker->files().id,
                      .path = maker->files().transformer.string(),
                      .quant = std::string(name_of(maker->engine().quant())),
                      .device = device.name(),
                      .bytes = maker->held_bytes(),
                      .on_gpu = !device.is_host(),
                      .caches = maker->caches()});
  }
  std::vector<std::string> gone;
  {
    const std::lock_guard lock(mutex_);
    for (const ModelInMemory& before : state_.models)
      if (std::none_of(models.begin(), models.end(), [&](const ModelInMemory& now) {
            return now.path == before.path && now.quant == before.quant && now.device == before.device;
          }))
        gone.push_back(before.name);
    state_.models = std::move(models);
    if (memory.total > 0) state_.device_memory = memory;
    state_.evicted = keeper_.evicted();
  }
  for (const std::string& name : gone) queue_.events().publish("model.unloaded", {{"model", name}});
}

// Asking a GPU for its free memory takes time that jobs which wait would lose.
void Worker::note_models_now_and_then() {
  if (used_models_ && Clock::now() - noted_models_ >= kNoteModels) note_models();
}

// On a fast GPU an image takes less time to make than to encode, so several are encoded at a time. They are saved in order. If
// all encoders are busy, or the system allows no more threads, the saver's thread encodes when it comes to the image.
std::shared_future<EncodedImage> Worker::encode(const std::shared_ptr<const UnsavedImage>& image) {
  constexpr int kEncoders = 4;
  if (encoding_->fetch_add(1) < kEncoders) {
    try {
      return std::async(std::launch::async, [image, encoding = encoding_] {
        const std::shared_ptr<void> leave(nullptr, [&](void*) { encoding->fetch_sub(1); });
        return image->encode();
      });
    } catch (const std::system_error&) {}
  }
  encoding_->fetch_sub(1);
  return std::async(std::launch::deferred, [image] { return image->encode(); });
}

void Worker::save(RunningJob& job, const ResolvedRequest& resolved, const Picture& picture, GenerationRecord record) {
  if (job.is_over()) return;
  previews_->drain(&job);  // nobody sees a preview after the image; it was encoded while the image was decoded
  if (record.extra.is_object() && record.extra.contains("safety"))
    job.context().log.warn("image {} was blurred by the safety check", picture.index + 1);
  const auto image = std::make_shared<const UnsavedImage>(job.take(resolved, picture, std::move(record)));
  saver_->add(&job, image->bytes(), [&job, image, encoded = encode(image)] { job.save(*image, encoded); });
}

// While the GPU waits for the host it does nothing: previews are enlarged and encoded during the next step. One that cannot be
// made is left out.
void Worker::preview(RunningJob& job, SmallPreview preview, const StepDone& step) {
  if (job.is_over()) return;
  const auto bytes = static_cast<int64_t>(preview.image.pixels.size());
  previews_->add(&job, bytes, [&job, preview = std::move(preview), index = job.next_index(), at = step.step, of = step.steps] {
    job.preview(preview, index, at, of);
  });
}

void Worker::complete(std::unique_ptr<RunningJob> job, const PhaseTimes& times, int64_t peak_bytes) {
  previews_->drain(job.get());
  job->forget_request();
  RunningJob* owner = job.get();
  saver_->finish(owner, [this, times, peak_bytes, job = std::shared_ptr<RunningJob>(std::move(job))](const auto& unsaved) {
    try {
      if (unsaved) std::rethrow_exception(unsaved);
      job->complete(times, peak_bytes);
    } catch (...) {
      end_badly(*job, std::current_exception());
    }
    note_end(*job);
  });
}

void Worker::run_alone(std::unique_ptr<RunningJob> owned, PictureMaker& maker) {
  RunningJob& job = *owned;
  std::optional<Clock::time_point> deadline;
  const PhaseTimes before = maker.times();
  try {
    const std::vector<ResolvedRequest>& requests = job.prepared().requests;
    if (requests.front().spec.strict.value_or(false)) refuse_long_prompts(maker.session().models, requests, context_.log_prompts);
    job.count_usage(maker.session().models);
    for (size_t i = 0; i < requests.size(); ++i) {
      Progress progress;
      progress.report = [&](Phase phase, int step, int steps) { job.tell(i, phase, step, steps); };
      const auto ends = [&] { return stopping_ || job.cancel_requested() || saver_->has_failed(&job); };
      progress.cancelled = [&] { return ends() || job.skip_requested(); };
      if (const auto seconds = requests[i].spec.deadline)
        deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*seconds));
      progress.deadline = deadline;
      const PictureMaker::Together calls{
          .deliver = [&](size_t, const Picture& picture,
                         GenerationRecord record) { save(job, requests[i], picture, std::move(record)); },
          .on_preview = [&](size_t, SmallPreview image, const StepDone& step) { preview(job, std::move(image), step); },
          .wants_preview = [&](size_t, const StepDone& step) { return job.wants_preview(step); }};
      job.take_skip();  // one that came too late for the last round does not count
      try {
        maker.make_together({&requests[i], 1}, calls, progress);
      } catch (const Error& e) {
        if (e.code() != ErrorCode::Cancelled || ends() || !job.take_skip()) throw;
      }
    }
  } catch (...) {
    end_drained(job, std::current_exception(), deadline && Clock::now() >= *deadline);
    return note_end(job);
  }
  complete(std::move(owned), difference(maker.times(), before), peak_on_device(maker));
}

void Worker::run_together(Jobs& jobs, PictureMaker& maker) {
  std::vector<ResolvedRequest> requests;
  std::vector<std::exception_ptr> refused(jobs.size());  // by the safety check
  for (const auto& job : jobs) {
    requests.push_back(job->prepared().requests.front());
    job->count_usage(maker.session().models);
  }
  Progress progress;
  progress.report = [&](Phase phase, int step, int steps) {
    for (const auto& job : jobs) job->tell(0, phase, step, steps);
  };
  progress.cancelled = [&] { return should_stop(jobs); };
  const PictureMaker::Together calls{
      .deliver = [&](size_t i, const Picture& picture,
                     GenerationRecord record) { save(*jobs[i], requests[i], picture, std::move(record)); },
      .on_preview = [&](size_t i, SmallPreview image, const StepDone& step) { preview(*jobs[i], std::move(image), step); },
      .wants_preview = [&](size_t i, const StepDone& step) { return jobs[i]->wants_preview(step); },
      .refused = [&](size_t i, const Error& error) { refused[i] = std::make_exception_ptr(error); }};
  const PhaseTimes before = maker.times();
  {
    const std::lock_guard lock(mutex_);
    totals_.merged += static_cast<int64_t>(jobs.size());
  }
  try {
    maker.make_together(requests, calls, progress);
  } catch (...) {
    for (const auto& job : jobs) {
      end_drained(*job, std::current_exception());
      note_end(*job);
    }
    return;
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (!refused[i]) {
      complete(std::move(jobs[i]), difference(maker.times(), before), peak_on_device(maker));
      continue;
    }
    end_drained(*jobs[i], refused[i]);
    note_end(*jobs[i]);
  }
}

void Worker::note_end(const RunningJob& job) {
  const Job& ended = job.job();
  const std::lock_guard lock(mutex_);
  std::erase(state_.jobs, ended.id);
  totals_.images += static_cast<int64_t>(ended.images.size());
  totals_.steps += ended.step * static_cast<int64_t>(std::max<size_t>(ended.images.size(), 1));
  if (ended.state == "completed") ++totals_.completed;
  if (ended.state == "cancelled") ++totals_.cancelled;
  if (ended.state != "failed") return;
  ++totals_.failed;
  context_.log.warn("job {} failed: {}", ended.id, ended.error.value("message", std::string()));
}

void Worker::run(Jobs jobs) {
  const auto began = Clock::now();
  {
    const std::lock_guard lock(mutex_);
    for (const auto& job : jobs) state_.jobs.push_back(job->job().id);
  }
  for (const auto& job : jobs) queue_.started(job->job());
  Jobs ready, alone;
  for (auto& job : jobs) {
    if (!prepare_job(*job)) note_end(*job);
    // Equal members do not make a batch yet: prompts may contain adapters or wildcards.
    else if (ready.empty() || (ready.front()->prepared().requests.size() == 1 && job->prepared().requests.size() == 1 &&
                               can_make_together(ready.front()->prepared().requests.front(), job->prepared().requests.front())))
      ready.push_back(std::move(job));
    else alone.push_back(std::move(job));
  }
  if (rewriter_) rewriter_->release();
  const auto with_model = [&](Jobs& group, const std::function<void(PictureMaker&)>& work_on) {
    if (group.empty()) return;
    PhaseTimes before, after;
    try {
      PictureMaker& maker = load_for(group);
      before = maker.times();
      work_on(maker);
      after = maker.times();
    } catch (...) {  // the model could not be loaded
      for (const auto& job : group) {
        if (!job) continue;  // it ran
        end_drained(*job, std::current_exception());
        note_end(*job);
      }
    }
    const std::lock_guard lock(mutex_);
    add(totals_.seconds, difference(after, before));
  };
  with_model(ready, [&](PictureMaker& maker) {
    if (ready.size() == 1) run_alone(std::move(ready.front()), maker);
    else run_together(ready, maker);
  });
  for (auto& job : alone) {
    Jobs one;
    one.push_back(std::move(job));
    with_model(one, [&](PictureMaker& maker) { run_alone(std::move(one.front()), maker); });
  }
  note_models_now_and_then();

  const std::lock_guard lock(mutex_);
  state_.loading = false;
  totals_.busy += std::chrono::duration<double>(Clock::now() - began).count();
}

void Worker::run_claimed(Jobs jobs) {
  if (is_text_kind(jobs.front()->job().kind)) run_text(*jobs.front());
  else run(std::move(jobs));
}

void Worker::load_and_unload() {
  if (forget_.exchange(false)) {
    found_.clear();
    rewriter_.reset();
  }
  std::optional<std::string> load;
  {
    const std::lock_guard lock(mutex_);
    load.swap(load_);
  }
  if (unload_.exchange(false)) {
    if (rewriter_) rewriter_->release();
    keeper_.drop();
    note_models();
  }
  if (!load) return;
  std::string name = *load;
  try {
    Json request = {{"kind", "generate"}};
    if (!load->empty()) request["model"] = *load;
    const RequestSpec spec = spec_of(defaults_.with(settings_of_job(request, queue_.assets(), context_)));
    const ModelFiles model = choose_model(spec, context_, &found_);
    name = model.id;
    queue_.events().publish("model.loading", {{"model", model.id}});
    keeper_.maker_for(spec, model, {}, {.report = {}, .cancelled = [this] { return stopping_.load(); }});
    note_models();
    queue_.events().publish("model.loaded", {{"model", model.id}});
  } catch (const std::exception& e) {
    context_.log.warn("the model could not be loaded: {}", e.what());
    const JobError error = job_error_of(std::current_exception());
    queue_.events().publish(
        "model.failed", {{"model", name}, {"error", {{"code", error.code}, {"message", error.message}, {"hint", error.hint}}}});
  }
}

void Worker::work() {
  auto last_job = Clock::now();
  while (!stopping_) {
    try {
      unreturned_.give_back(queue_, options_.name);
      load_and_unload();
      if (Jobs jobs = claim(); !jobs.empty()) {
        if (jobs.front()->job().kind == "train") run_training(jobs.front()->job());
        else run_claimed(std::move(jobs));
        last_job = Clock::now();
        continue;
      }
      if (used_models_) note_models();
      const bool idle = options_.idle_unload.count() > 0 && Clock::now() - last_job >= options_.idle_unload;
      if (rewriter_ && Clock::now() - last_job >= kWriterStays) rewriter_.reset();
      if (idle && keeper_.maker()) unload_ = true;
      else queue_.wait_for_work(kIdlePoll);
    } catch (const std::exception& e) {  // the store failed: a full disk, say
      context_.log.warn("the worker waits a second: {}", e.what());
      std::unique_lock lock(mutex_);
      stopped_.wait_for(lock, std::chrono::seconds(1), [this] { return stopping_.load(); });
    }
  }
  saver_->drain();
  rewriter_.reset();
  keeper_.drop();
}

// A separate thread: the worker itself may be busy with one step for longer than a lease lasts.
void Worker::keep_leases() {
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, options_.lease / kLeaseParts, [this] { return worked_; })) {
    const std::vector<std::string> running = state_.jobs;
    lock.unlock();
    try {
      queue_.store().renew(options_.name, unreturned_.with(running), now_ms());
      for (const Job& job : queue_.store().recover(now_ms())) queue_.finished(job);
      queue_.check_waiting();  // a second process on this store may have run a job that a client here waits for
      queue_.store().prune(now_ms());
      queue_.assets().remove_older("temporary", now_ms() - std::chrono::milliseconds(options_.keep_unsaved).count());
    } catch (const std::exception& e) {
      context_.log.warn("the leases of running jobs were not renewed: {}", e.what());
    }
    lock.lock();
  }
}

}  // namespace flux2
