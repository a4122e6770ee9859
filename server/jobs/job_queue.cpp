#include "server/jobs/job_queue.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/sha256.h"
#include "base/start_thread.h"
#include "server/http/errors.h"
#include "server/jobs/job_kinds.h"
#include "server/jobs/merge_key.h"
#include "server/jobs/studio_request.h"
#include "server/store/ids.h"

namespace flux2 {

namespace {

constexpr const char* kRetryAfterSeconds = "5";
constexpr int64_t kHourMs = 3'600'000;
constexpr auto kCancelAgain = std::chrono::milliseconds(200);  // while the store cannot

// Equal for requests that differ only in the order of members.
std::string hash_of(const JobQueue::Submission& submission) {
  const std::string text =
      !submission.sent.empty()
          ? submission.sent
          : nlohmann::json(submission.request).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const std::string all = submission.kind + "\n" + submission.project + "\n" + text;
  return sha256(std::as_bytes(std::span(all)));
}

// What the store says of a key that was used with another request.
HttpError key_was_reused(const Error& e) {
  HttpError error(409, "idempotency_key_reused", e.what(), "Idempotency-Key");
  error.hint = e.hint().plain();
  return error;
}

int attempt_of(const Job& job) {
  if (!job.resolved.is_object()) return 1;
  const auto found = job.resolved.find("attempt");
  return found != job.resolved.end() && found->is_number_integer() ? found->get<int>() : 1;
}

}  // namespace

// Both limits say when to come back: a full queue soon, work when the oldest job leaves the hour.
void JobQueue::check_limits(const Caller& caller, int64_t work) {
  const int64_t now = now_ms();
  const KeyUsage::Used used = usage_->used(caller.key, now - kHourMs);
  const auto refuse = [](std::string code, const std::string& text, int64_t seconds) {
    HttpError error(429, std::move(code), text);
    error.headers = {{"retry-after", std::to_string(std::max<int64_t>(seconds, 1))}};
    throw error;
  };
  if (caller.limits.queue > 0 && used.jobs >= caller.limits.queue) {
    ++refused_.queue;
    refuse("key_queue_full",
           fmt::format("This key has {} of the {} jobs that it may have waiting or running.", used.jobs, caller.limits.queue), 5);
  }
  if (caller.limits.work <= 0 || used.work + work <= caller.limits.work) return;
  ++refused_.work;
  refuse("key_work_exceeded",
         fmt::format("This key may use {} megapixel-steps an hour. It has used {}, and this request needs {}.",
                     caller.limits.work, used.work, work),
         used.oldest == 0 ? kHourMs / 1000 : (used.oldest + kHourMs - now) / 1000 + 1);
}

// The job that another request with the same idempotency key has made.
std::optional<Job> JobQueue::submitted_before(const Job& job) {
  if (job.idempotency_key.empty()) return std::nullopt;
  try {
    return store_.first_with_key(job);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::Incompatible) throw key_was_reused(e);
    throw;
  }
}

JobStore::Inserted JobQueue::submit(const Submission& submission) {
  Job job;
  job.id = new_id();
  job.kind = submission.kind;
  job.lane = submission.lane;
  job.project = submission.project.empty() ? project_in_request(submission.request) : submission.project;
  job.client_ref = submission.client_ref;
  job.model_key = submission.model_key;
  job.merge_key = submission.merge_key.empty() ? merge_key_of(submission.request) : submission.merge_key;
  job.priority = submission.priority;
  job.request = submission.request;
  if (!submission.warnings.empty()) job.result = {{"warnings", submission.warnings}};
  if (submission.attempt > 1) job.resolved = {{"attempt", submission.attempt}};
  job.idempotency_key = submission.idempotency_key;
  if (!job.idempotency_key.empty() && !submission.caller.key.empty())
    job.idempotency_key = submission.caller.key.substr(0, 16) + "/" + job.idempotency_key;
  job.request_hash = hash_of(submission);
  job.retry_of = submission.retry_of;
  job.created = now_ms();

  // A request that is repeated needs nothing new: no limit and no lack of memory refuses it.
  if (auto first = submitted_before(job)) return {std::move(*first), true};
  const int64_t work = admit_ && submission.lane == "gpu" ? admit_(submission.request) : 0;
  const bool limited = usage_ && submission.caller.limits.any_of_jobs();
  std::unique_lock<std::mutex> counting;
  if (limited) {
    counting = std::unique_lock(limits_);
    if (auto first = submitted_before(job)) return {std::move(*first), true};  // both came at the same time
    check_limits(submission.caller, work);
  }
  JobStore::Inserted inserted;
  try {
    inserted = store_.insert(job, limit_);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::Incompatible) throw key_was_reused(e);
    if (e.code() == ErrorCode::Refused) {
      HttpError error(429, "queue_full", e.what());
      error.hint = e.hint().plain();
      error.headers = {{"retry-after", kRetryAfterSeconds}};
      throw error;
    }
    throw;
  }
  if (inserted.existed) return inserted;
  if (limited) {
    usage_->add(submission.caller.key, inserted.job.id, work, job.created);
    counting.unlock();
  }
  events_.publish("job.queued", job_to_json(inserted.job, store_, false), inserted.job.id);
  publish_queue();
  wake();
  return inserted;
}

void JobQueue::when_finished(const std::string& id, std::function<void(const Job&)> call) {
  uint64_t ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    ticket = next_ticket_++;
    waiting_.emplace(id, Waiting{ticket, std::move(call)});
  }
  // The job may have ended before the entry was there. Whoever takes the entry out makes the call.
  const auto take_back = [&]() -> std::function<void(const Job&)> {
    const std::lock_guard lock(mutex_);
    const auto [first, last] = waiting_.equal_range(id);
    for (auto entry = first; entry != last; ++entry) {
      if (entry->second.ticket != ticket) continue;
      auto mine = std::move(entry->second.call);
      waiting_.erase(entry);
      return mine;
    }
    return {};
  };
  std::optional<Job> job;
  try {
    job = store_.get(id);
    if (!job) fail(ErrorCode::NotFound, "job {} not found", id);
  } catch (...) {
    if (!take_back()) return;  // it was called meanwhile
    throw;
  }
  if (!job->is_final()) return;
  if (const auto mine = take_back()) mine(*job);
}

std::optional<Job> JobQueue::cancel(const std::string& id) {
  std::optional<Job> before, after;
  const int64_t now = now_ms();
  {
    const std::lock_guard lock(cancelling_);
    before = store_.get(id);
    if (before) after = store_.cancel(id, now);
  }
  if (!after || before->state == after->state) return after;
  // Another process may have cancelled it in the same moment, and reports it.
  if (before->state == "queued" && after->state == "cancelled" && after->finished == now) finished(*after);
  else if (after->state == "cancelling") note_cancel(id), events_.publish("job.updated", job_to_json(*after, store_, false), id);
  return after;
}

void JobQueue::cancel_soon(const std::string& id) {
  {
    const std::lock_guard lock(mutex_);
    to_cancel_.push_back(id);
    if (!canceller_.joinable() && !stopping_) canceller_ = start_thread_if_possible([this] { make_cancels(); });
  }
  cancels_.notify_all();
}

void JobQueue::stop() {
  std::jthread ended;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    ended = std::move(canceller_);
  }
  cancels_.notify_all();
}

void JobQueue::make_cancels() {
  std::unique_lock lock(mutex_);
  for (;;) {
    cancels_.wait(lock, [this] { return stopping_ || !to_cancel_.empty(); });
    if (to_cancel_.empty()) return;
    const std::string id = to_cancel_.front();
    lock.unlock();
    bool done = false;
    // A call would wait for half a minute. Others ask the database again and again, and find it when it is back.
    if (store_.is_available()) {
      try {
        cancel(id);
        done = true;
      } catch (const std::exception&) {  // tried again
      }
    }
    lock.lock();
    to_cancel_.pop_front();
    if (done) continue;
    if (stopping_) {  // each was tried once more
      if (!store_.is_available()) return;
      continue;
    }
    to_cancel_.push_back(id);  // behind the others, which it must not hold up
    cancels_.wait_for(lock, kCancelAgain, [this] { return stopping_; });
  }
}

Job JobQueue::retry(const std::string& id, const Caller& caller) {
  const auto job = store_.get(id);
  if (!job) throw HttpError(404, "job_not_found", fmt::format("Job job_{} not found.", id));
  if (job->kind == "train") throw HttpError(409, "wrong_kind", "This job belongs to a training run. Resume the run instead.");
  if (!job->is_final())
    throw HttpError(409, "job_not_finished", fmt::format("The job is {}. Only a finished job can be retried.", job->state));
  return submit({.request = job->request,
                 .kind = job->kind,
                 .client_ref = job->client_ref,
                 .project = job->project,
                 .retry_of = job->id,
                 .priority = job->priority,
                 .lane = job->lane,
                 .model_key = job->model_key,
                 .merge_key = job->merge_key,
                 .attempt = attempt_of(*job) + 1,
                 .caller = caller})
      .job;
}

std::optional<JobQueue::Preview> JobQueue::preview(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = previews_.find(id);
  return found == previews_.end() ? std::nullopt : std::optional(found->second);
}

void JobQueue::set_preview(const std::string& id, Preview preview) {
  const std::lock_guard lock(mutex_);
  previews_[id] = std::move(preview);
}

void JobQueue::started(const Job& job) {
  events_.publish("job.started", job_to_json(job, store_, false), job.id);
  publish_queue();
}

void JobQueue::finished(const Job& job) {
  {
    const std::lock_guard lock(mutex_);
    previews_.erase(job.id);
    cancelled_.erase(job.id);
    skipped_.erase(job.id);
  }
  publish_end(job);
  publish_queue();
  call_waiting(job);
}

bool JobQueue::give_back(const std::string& id, const std::string& worker) {
  if (!store_.give_back(id, worker)) return false;
  try {
    if (const auto job = store_.get(id); job && job->is_final()) finished(*job);
  } catch (const Error&) {  // check_waiting() finds it when the store is back
  }
  return true;
}

void JobQueue::call_waiting(const Job& job) {
  Calls calls;
  {
    const std::lock_guard lock(mutex_);
    const auto [first, last] = waiting_.equal_range(job.id);
    for (auto entry = first; entry != last; ++entry) calls.push_back(std::move(entry->second.call));
    waiting_.erase(first, last);
  }
  for (const auto& call : calls) {
    try {
      call(job);
    } catch (const std::exception&) {  // the others are called all the same
    }
  }
}

void JobQueue::check_waiting() {
  std::set<std::string> ids;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, waiting] : waiting_) ids.insert(id);
  }
  for (const std::string& id : ids)
    if (const auto job = store_.get(id); job && job->is_final()) call_waiting(*job);
}

bool JobQueue::anybody_waits() const {
  const std::lock_guard lock(mutex_);
  return !waiting_.empty();
}

void JobQueue::ended_elsewhere(const std::string& id) {
  {
    const std::lock_guard lock(mutex_);
    previews_.erase(id);
    cancelled_.erase(id);
    if (!waiting_.contains(id)) return;
  }
  if (const auto job = store_.get(id); job && job->is_final()) call_waiting(*job);
}

void JobQueue::note_cancel(const std::string& id) {
  const std::lock_guard lock(mutex_);
  cancelled_.insert(id);
}

bool JobQueue::cancel_noted(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  return cancelled_.contains(id);
}

void JobQueue::skip(const std::string& id) {
  note_skip(id);
  store_.send(kSkipSignal, id);
}

void JobQueue::note_skip(const std::string& id) {
  const std::lock_guard lock(mutex_);
  skipped_.insert(id);
}

bool JobQueue::skip_noted(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  return skipped_.contains(id);
}

bool JobQueue::take_skip(const std::string& id) {
  const std::lock_guard lock(mutex_);
  return skipped_.erase(id) > 0;
}

void JobQueue::publish_end(const Job& job) {
  Json assets = Json::array();
  for (const JobImage& image : job.images) assets.push_back("ast_" + image.asset);
  Json data = {{"job_id", "job_" + job.id},
               {"type", is_text_kind(job.kind)                     ? "text"
                        : job.kind == "train" || job.lane != "gpu" ? job.kind
                                                                   : "image"},
               {"asset_ids", assets},
               {"url", nullptr},
               {"thumbnail_url", nullptr}};
  if (!job.images.empty()) {
    data["url"] = job_image_url(job.id, job.images[0].index);
    data["thumbnail_url"] = job_thumbnail_url(job.id, job.images[0].index);
  }
  if (const auto link = job.request.is_object() ? job.request.find(kResolution) : job.request.end();
      job.request.is_object() && link != job.request.end() && link->is_object()) {
    if (link->contains("element")) data["element_id"] = "elm_" + link->value("element", std::string());
    if (link->contains("shot")) data["shot_id"] = "sht_" + link->value("shot", std::string());
    if (link->value("thumbnail", false)) data["type"] = "thumbnail";
  }
  if (!job.error.is_null()) data["error"] = job.error;
  events_.publish("job." + job.state, data, job.id);
}

void JobQueue::publish_queue() {
  if (!events_.anybody_listens()) return;
  Json data;
  try {
    const auto counts = store_.counts("gpu");
    data = {{"running", counts.running}, {"queued", counts.queued}, {"paused", store_.paused()}};
  } catch (const Error&) {
    return;  // the numbers will come with the next change
  }
  events_.publish_progress("queue", data);
}

void JobQueue::wait_for_work(std::chrono::milliseconds at_most, std::optional<uint64_t> seen) {
  std::unique_lock lock(mutex_);
  const uint64_t known = seen.value_or(waited_for_);
  work_.wait_for(lock, at_most, [&] { return submissions_ != known; });
  if (!seen) waited_for_ = submissions_;
}

uint64_t JobQueue::submissions() const {
  const std::lock_guard lock(mutex_);
  return submissions_;
}

void JobQueue::wake() {
  {
    const std::lock_guard lock(mutex_);
    ++submissions_;
  }
  work_.notify_all();
}

}  // namespace flux2
