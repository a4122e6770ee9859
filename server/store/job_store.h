#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/store/job.h"
#include "server/store/sql.h"

namespace flux2 {

struct StoredEvent {
  int64_t id = 0;
  std::string name, data;
  int64_t at = 0;
};

// The queue, as processes share it. Every call is one transaction and may come from any thread. SQLite serves one machine,
// PostgreSQL many. While the database cannot be reached, calls wait for half a minute and then throw DatabaseAway.
class JobStore {
 public:
  virtual ~JobStore() = default;

  struct Inserted {
    Job job;
    bool existed = false;  // the idempotency key was used before with the same request
  };
  // Adds a queued job and gives it `seq`. With an idempotency key that was used within 24 hours: returns the first job if the
  // request hash is equal, else throws Incompatible. Throws Refused if `queue_limit` jobs of the lane wait or run already.
  virtual Inserted insert(const Job& job, int64_t queue_limit) = 0;
  // The job that insert() would return instead of adding this one. Throws as it does for an idempotency key.
  virtual std::optional<Job> first_with_key(const Job& job) = 0;

  virtual std::optional<Job> get(const std::string& id) = 0;
  virtual std::vector<Job> list(const JobFilter& filter) = 0;     // newest first
  virtual std::vector<Job> waiting(const std::string& lane) = 0;  // in the order in which they will run

  // The next job of the lane, now running for `worker` under a lease of 30 s; nothing if none waits or the queue is paused.
  // Order: priority, then seq. Among the first 20, one whose model_key is loaded passes others of the same priority if
  // all that it passes have waited less than 60 s.
  virtual std::optional<Job> claim(const std::string& lane, const std::string& worker, const LoadedModels& loaded,
                                   int64_t now) = 0;
  // A waiting job with this merge key, claimed in the same way.
  virtual std::optional<Job> claim_like(const std::string& lane, const std::string& merge_key, const std::string& worker,
                                        int64_t now) = 0;
  virtual std::optional<Job> claim_one(const std::string& id, const std::string& worker,
                                       int64_t now) = 0;  // this one, if it waits
  // The leases that the worker has of these jobs. Whatever else runs in its name was lost, and its lease ends.
  virtual void renew(const std::string& worker, const std::vector<std::string>& ids, int64_t now) = 0;

  // Changes of a running job count only while `worker` holds its lease; false if it does not.
  virtual bool set_progress(const Job& job) = 0;  // phase, message, step, steps, progress, resolved
  virtual bool add_image(const std::string& id, const std::string& worker, const JobImage& image) = 0;
  virtual bool finish(const Job& job) = 0;  // state, error, result, resolved unless null; images stay; `finished` is set
  // At shutdown: running → queued, at its old place and without images. A job that was to be cancelled ends instead.
  virtual bool give_back(const std::string& id, const std::string& worker) = 0;

  // Asks for a job's end: a queued one is cancelled at once, a running one becomes "cancelling". Returns the job after that, or
  // nothing if there is no such job. A final job is returned unchanged.
  virtual std::optional<Job> cancel(const std::string& id, int64_t now) = 0;
  // The same, but `pause` is set in the job, for those who go on with it later, and a running one stays "running". Does not take
  // back what cancel() asked for.
  virtual std::optional<Job> pause(const std::string& id, int64_t now) = 0;
  virtual bool cancel_requested(const std::string& id) = 0;  // by cancel() or pause()

  virtual bool set_priority(const std::string& id, int priority) = 0;  // false unless it waits
  // These waiting jobs exchange their places (priority and seq), so that they run in this order. Others stay where they are.
  virtual void reorder(const std::vector<std::string>& ids) = 0;
  virtual bool remove(const std::string& id) = 0;  // a final job; false otherwise

  // Jobs whose lease has expired become failed with code "interrupted". Returns them.
  virtual std::vector<Job> recover(int64_t now) = 0;
  virtual void prune(int64_t now) = 0;  // final jobs older than 30 days or beyond 5000; events beyond 1000

  struct Counts {
    int64_t running = 0, queued = 0;
  };
  virtual Counts counts(const std::string& lane) = 0;
  virtual int64_t queue_position(const Job& job) = 0;  // 1 for the next one; 0 unless it waits

  virtual bool paused() = 0;
  virtual void set_paused(bool paused) = 0;

  virtual int64_t add_event(const std::string& name, const std::string& data, int64_t now) = 0;  // its id
  virtual std::vector<StoredEvent> events_after(int64_t id) = 0;
  virtual int64_t first_event() = 0;  // the oldest that is kept; 0 without events
  virtual int64_t last_event() = 0;

  // Where several processes share the store: see SqlDatabase.
  virtual bool is_available() const { return true; }
  virtual std::unique_ptr<SqlSignals> signals() { return nullptr; }
  virtual void send(const std::string& /*kind*/, const std::string& /*text*/) {}
};

}  // namespace flux2
