#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "server/http/key_limits.h"
#include "server/jobs/events.h"
#include "server/store/asset_store.h"
#include "server/store/job_store.h"
#include "server/store/key_usage.h"

namespace flux2 {

// What every API family uses: submitting, watching and cancelling jobs. Thread-safe.
class JobQueue {
 public:
  JobQueue(JobStore& store, AssetStore& assets, Events& events, int64_t limit)
      : store_(store), assets_(assets), events_(events), limit_(limit) {}
  ~JobQueue() { stop(); }

  int64_t limit() const { return limit_; }  // of waiting and running jobs
  JobStore& store() { return store_; }
  AssetStore& assets() { return assets_; }
  Events& events() { return events_; }

  // Submits a job whose request was checked (job_request.h). Throws HttpError 429 `queue_full`, 409 `idempotency_key_reused`.
  struct Submission {
    Json request;  // the native form
    std::string kind = "generate", idempotency_key = {}, client_ref = {}, project = {}, retry_of = {};
    int priority = 0;
    std::string lane = "gpu", model_key = {}, merge_key = {};
    // The body as the client sent it, which must be equal when an idempotency key is used again. Empty: `request`, whose seed
    // must then not be drawn anew each time.
    std::string sent = {};
    int attempt = 1;
    std::vector<std::string> warnings = {};  // kept in job.result; the worker adds its own
    Caller caller = {};                      // whose limits count; idempotency keys are the caller's own
  };
  JobStore::Inserted submit(const Submission& submission);
  // Called with every request before it is stored; refuses one by throwing HttpError. It returns the work of the request, in
  // megapixels times steps. Before the first submission.
  void set_admission(std::function<int64_t(const Json& request)> admit) { admit_ = std::move(admit); }
  void set_usage(KeyUsage* usage) { usage_ = usage; }  // limits of keys count from now on. Before the first submission
  const LimitCounts& refused() const { return refused_; }

  // Calls back once, from a worker's thread, when the job is final; at once if it is already. Throws NotFound without such a job.
  void when_finished(const std::string& id, std::function<void(const Job&)> call);

  std::optional<Job> cancel(const std::string& id);
  // Returns at once, for callers that must not wait for the database. A thread cancels the job, as soon as the store can.
  void cancel_soon(const std::string& id);
  void stop();  // ends that thread; what still waits is tried once more
  // A running job that makes its images in several rounds ends the current one and goes on with the next.
  void skip(const std::string& id);
  // Throws HttpError 404 `job_not_found`, 409 `job_not_finished`, and what submit() throws.
  Job retry(const std::string& id, const Caller& caller = {});

  // The newest preview of a running job.
  struct Preview {
    std::string bytes, mime;
    int step = 0, index = 0, width = 0, height = 0;
  };
  std::optional<Preview> preview(const std::string& id) const;

  // For workers.
  void set_preview(const std::string& id, Preview preview);
  void started(const Job& job);   // tells listeners
  void finished(const Job& job);  // tells listeners and those who wait
  // A job that its worker cannot end. It goes back to the queue, or ends if it was to be cancelled; then listeners and those who
  // wait are told. False if the worker does not hold it.
  bool give_back(const std::string& id, const std::string& worker);
  // Returns early when a job is submitted or was submitted since the last call returned. Where several threads wait, each gives
  // the count of submissions() that it read before it looked for work.
  void wait_for_work(std::chrono::milliseconds at_most, std::optional<uint64_t> seen = {});
  uint64_t submissions() const;
  void wake();
  // Calls back for jobs that another process has finished. To be called now and then where several processes share a store.
  void check_waiting();

  bool anybody_waits() const;                      // for the end of a job
  void ended_elsewhere(const std::string& id);     // another process has finished it
  void note_cancel(const std::string& id);         // another process has asked for its end
  bool cancel_noted(const std::string& id) const;  // by this process or another
  void note_skip(const std::string& id);           // another process has asked for it
  bool skip_noted(const std::string& id) const;
  bool take_skip(const std::string& id);  // whether it was asked for; it is done then
  void set_cancel_poll(std::chrono::milliseconds every) { cancel_poll_ = every; }
  std::chrono::milliseconds cancel_poll() const { return cancel_poll_; }  // how often a running job asks the store

  void publish_queue();  // the event `queue`, after a change that the queue does not see itself

 private:
  struct Waiting {
    uint64_t ticket = 0;
    std::function<void(const Job&)> call;
  };
  using Calls = std::vector<std::function<void(const Job&)>>;

  void call_waiting(const Job& job);
  void publish_end(const Job& job);
  std::optional<Job> submitted_before(const Job& job);
  void make_cancels();

  JobStore& store_;
  AssetStore& assets_;
  Events& events_;
  int64_t limit_;
  void check_limits(const Caller& caller, int64_t work);

  std::function<int64_t(const Json&)> admit_;
  KeyUsage* usage_ = nullptr;
  LimitCounts refused_;
  std::mutex limits_;  // held from counting what a key uses until the new job counts
  mutable std::mutex mutex_;
  std::mutex cancelling_;  // one at a time, so that only one of two reports the end of a job
  std::condition_variable work_;
  uint64_t submissions_ = 0, waited_for_ = 0, next_ticket_ = 1;
  std::multimap<std::string, Waiting> waiting_;
  std::map<std::string, Preview> previews_;
  std::set<std::string> cancelled_;  // running jobs that are to stop
  std::set<std::string> skipped_;    // running jobs that are to go on with their next round
  std::atomic<std::chrono::milliseconds> cancel_poll_ = std::chrono::milliseconds(50);
  std::condition_variable cancels_;    // there are some, or it is the end
  std::deque<std::string> to_cancel_;  // guarded by mutex_, as is the next one
  bool stopping_ = false;
  std::jthread canceller_;  // started with the first call of cancel_soon()
};

// A job as the native API shows it.
Json job_to_json(const Job& job, JobStore& store, bool with_request = true);

// The addresses of its images.
std::string job_image_url(const std::string& id, int index);
std::string job_thumbnail_url(const std::string& id, int index);

}  // namespace flux2
