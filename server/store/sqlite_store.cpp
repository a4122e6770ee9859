#include "server/store/sqlite_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "base/error.h"
#include "server/store/busy_retry.h"
#include "server/store/ids.h"
#include "server/store/job_rows.h"
#include "server/store/schema.h"

namespace flux2 {

namespace {

constexpr int64_t kDayMs = 86'400'000;
constexpr int64_t kMayBePassedMs = 60'000;  // a job that has waited longer is not overtaken
constexpr int64_t kLookAhead = 20;
constexpr int64_t kKeptJobs = 5000, kKeptMs = 30 * kDayMs;
constexpr int64_t kKeptEvents = 1000, kEventBatch = 100;  // so many events are deleted at a time

// Which of the first waiting jobs runs now. One for the loaded model passes others of its priority that have not waited long.
size_t next_of(const std::vector<Job>& jobs, const std::string& loaded_model, int64_t now) {
  if (loaded_model.empty()) return 0;
  for (size_t i = 0; i < jobs.size() && jobs[i].priority == jobs[0].priority; ++i) {
    if (jobs[i].model_key == loaded_model) return i;
    if (now - jobs[i].created >= kMayBePassedMs) return 0;
  }
  return 0;
}

class SqliteStore : public JobStore {
 public:
  explicit SqliteStore(const std::filesystem::path& path) : database_(path, Database::Access::Write), rows_(database_) {
    retried_while_busy([&] { migrate_jobs(database_); });
  }

  Inserted insert(const Job& job, int64_t queue_limit) override {
    return writing([&]() -> Inserted {
      Job added = job;
      if (added.created == 0) added.created = now_ms();
      if (auto first = first_with_key(added)) {
        if (first->request_hash != job.request_hash)
          throw Error(ErrorCode::Incompatible, "this idempotency key was used with another request",
                      "use a new key for each request");
        return {std::move(*first), true};
      }
      const Counts there = rows_.count(job.lane);
      if (there.running + there.queued >= queue_limit)
        throw Error(ErrorCode::Refused, fmt::format("the queue is full: {} jobs wait or run", there.running + there.queued),
                    "try again when some of them have finished");
      added.state = "queued";
      added.seq = rows_.one("SELECT coalesce(max(seq), 0) + 1 FROM jobs");
      rows_.add(added);
      return {std::move(added), false};
    });
  }

  std::optional<Job> get(const std::string& id) override {
    return reading([&] { return rows_.find(id); });
  }

  std::vector<Job> list(const JobFilter& filter) override {
    std::string where = "1";
    std::vector<std::string> values;
    const auto narrow = [&](const char* condition, const std::string& value) {
      if (value.empty()) return;
      where += fmt::format(" AND {} ?", condition);
      values.push_back(value);
    };
    narrow("state =", filter.state);
    narrow("kind =", filter.kind);
    narrow("project =", filter.project);
    narrow("id <", filter.before);
    return reading([&] { return rows_.select(where + " ORDER BY id DESC LIMIT ?", values, std::max(filter.limit, 0)); });
  }

  std::vector<Job> waiting(const std::string& lane) override {
    return reading([&] { return rows_.first_waiting(lane, -1); });
  }

  std::optional<Job> claim(const std::string& lane, const std::string& worker, const std::string& loaded_model,
                           int64_t now) override {
    if (!anything_to_claim(lane)) return std::nullopt;
    return writing([&]() -> std::optional<Job> {
      if (rows_.is_paused()) return std::nullopt;
      std::vector<Job> jobs = rows_.first_waiting(lane, loaded_model.empty() ? 1 : kLookAhead);
      if (jobs.empty()) return std::nullopt;
      return rows_.hold(std::move(jobs[next_of(jobs, loaded_model, now)]), worker, now);
    });
  }

  std::optional<Job> claim_like(const std::string& lane, const std::string& merge_key, const std::string& worker,
                                int64_t now) override {
    if (merge_key.empty() || !anything_to_claim(lane)) return std::nullopt;
    return writing([&]() -> std::optional<Job> {
      if (rows_.is_paused()) return std::nullopt;
      auto jobs = rows_.select("state = 'queued' AND lane = ? AND merge_key = ? ORDER BY priority DESC, seq LIMIT ?",
                               {lane, merge_key}, 1);
      if (jobs.empty()) return std::nullopt;
      return rows_.hold(std::move(jobs[0]), worker, now);
    });
  }

  void renew(const std::string& worker, int64_t now) override {
    writing([&] {
      database_.prepare(fmt::format("UPDATE jobs SET lease_until = ? WHERE worker = ? AND {}", kHeld))
          .bind(now + kLeaseMs)
          .bind(worker)
          .run();
    });
  }

  bool set_progress(const Job& job) override {
    return while_held(job.id, job.worker, [&] { rows_.set_progress(job); });
  }

  bool add_image(const std::string& id, const std::string& worker, const JobImage& image) override {
    return while_held(id, worker, [&] { rows_.add_image(id, image); });
  }

  bool finish(const Job& job) override {
    check(job.is_final(), "a job cannot finish in state \"{}\"", job.state);
    return while_held(job.id, job.worker, [&] { rows_.finish(job); });
  }

  bool give_back(const std::string& id, const std::string& worker) override {
    return while_held(id, worker, [&] {
      if (is_cancelled(id)) rows_.end(id, "cancelled", now_ms());  // it must not run again
      else rows_.requeue(id);
    });
  }

  std::optional<Job> cancel(const std::string& id, int64_t now) override {
    return writing([&]() -> std::optional<Job> {
      const auto job = rows_.find(id);
      if (!job || job->is_final()) return job;
      database_.prepare("UPDATE jobs SET cancel = 1, state = 'cancelling' WHERE id = ?").bind(id).run();
      if (job->state == "queued") rows_.end(id, "cancelled", now);
      return rows_.find(id);
    });
  }

  bool cancel_requested(const std::string& id) override {
    return reading([&] { return is_cancelled(id); });
  }

  bool set_priority(const std::string& id, int priority) override {
    return writing([&] {
      database_.prepare("UPDATE jobs SET priority = ? WHERE id = ? AND state = 'queued'").bind(priority).bind(id).run();
      return database_.changes() > 0;
    });
  }

  void reorder(const std::vector<std::string>& ids) override {
    writing([&] {
      std::map<std::string, std::vector<Job>> lanes;  // in the order asked for
      std::set<std::string> seen;
      for (const std::string& id : ids) {
        auto job = rows_.find(id);
        if (job && job->state == "queued" && seen.insert(id).second) lanes[job->lane].push_back(std::move(*job));
      }
      for (const auto& [lane, jobs] : lanes) rows_.exchange_places(jobs);
    });
  }

  bool remove(const std::string& id) override {
    return writing([&] {
      database_.prepare(fmt::format("DELETE FROM jobs WHERE id = ? AND {}", kFinal)).bind(id).run();
      if (database_.changes() == 0) return false;
      rows_.forget_images(id);
      return true;
    });
  }

  std::vector<Job> recover(int64_t now) override {
    const auto expired = [&] {
      Statement found = database_.prepare(fmt::format("SELECT id FROM jobs WHERE {} AND lease_until < ? ORDER BY seq", kHeld));
      found.bind(now);
      std::vector<std::string> ids;
      while (found.step()) ids.push_back(found.text(0));
      return ids;
    };
    if (reading(expired).empty()) return {};
    return writing([&] {
      std::vector<Job> recovered;
      for (const std::string& id : expired()) {
        Job job = *rows_.find(id);
        job.state = "failed";
        job.finished = now;
        job.error = {{"code", "interrupted"},
                     {"message", "the process that ran this job has ended or does not answer"},
                     {"hint", "retry the job"}};
        rows_.finish(job);
        recovered.push_back(*rows_.find(id));
      }
      return recovered;
    });
  }

  void prune(int64_t now) override {
    const int64_t events_until = last_event() - kKeptEvents, jobs_until = oldest_end_kept(now);
    const bool any = reading([&] {
      return rows_.one(fmt::format("SELECT EXISTS (SELECT 1 FROM events WHERE id <= {}) OR EXISTS (SELECT 1 FROM jobs WHERE {})",
                                   events_until, ended_before(jobs_until))) != 0;
    });
    if (!any) return;
    writing([&] {
      database_.run(fmt::format("DELETE FROM job_images WHERE job IN (SELECT id FROM jobs WHERE {})", ended_before(jobs_until)));
      database_.run("DELETE FROM jobs WHERE " + ended_before(jobs_until));
      drop_events_until(events_until);
    });
  }

  Counts counts(const std::string& lane) override {
    return reading([&] { return rows_.count(lane); });
  }

  int64_t queue_position(const Job& job) override {
    return reading([&] {
      return rows_.one(
          "SELECT (SELECT count(*) FROM jobs o WHERE o.state = 'queued' AND o.lane = j.lane AND (o.priority > j.priority OR "
          "(o.priority = j.priority AND o.seq <= j.seq))) FROM jobs j WHERE j.id = ? AND j.state = 'queued'",
          {job.id});
    });
  }

  bool paused() override {
    return reading([&] { return rows_.is_paused(); });
  }

  void set_paused(bool paused) override {
    writing([&] {
      database_.prepare("INSERT INTO settings VALUES ('paused', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value")
          .bind(paused ? "1" : "0")
          .run();
    });
  }

  int64_t add_event(const std::string& name, const std::string& data, int64_t now) override {
    return writing([&] {
      database_.prepare("INSERT INTO events (name, data, at) VALUES (?, ?, ?)").bind(name).bind(data).bind(now).run();
      const int64_t id = rows_.one("SELECT last_insert_rowid()");
      if (id % kEventBatch == 0) drop_events_until(id - kKeptEvents);
      return id;
    });
  }

  std::vector<StoredEvent> events_after(int64_t id) override {
    return reading([&] {
      Statement found = database_.prepare("SELECT id, name, data, at FROM events WHERE id > ? ORDER BY id");
      found.bind(id);
      std::vector<StoredEvent> events;
      while (found.step()) events.push_back({found.integer(0), found.text(1), found.text(2), found.integer(3)});
      return events;
    });
  }

  int64_t first_event() override {
    return reading([&] { return rows_.one("SELECT coalesce(min(id), 0) FROM events"); });
  }
  int64_t last_event() override {
    return reading([&] { return rows_.one("SELECT coalesce(max(id), 0) FROM events"); });
  }

 private:
  template <class Body>
  std::invoke_result_t<Body> writing(Body&& body) {
    const std::lock_guard lock(mutex_);
    return in_transaction(database_, body);
  }

  template <class Body>
  std::invoke_result_t<Body> reading(Body&& body) {
    const std::lock_guard lock(mutex_);
    return retried_while_busy([&] {
      const ReadSnapshot snapshot(database_);
      return body();
    });
  }

  template <class Body>
  bool while_held(const std::string& id, const std::string& worker, Body&& body) {
    return writing([&] {
      if (!rows_.holds(id, worker)) return false;
      body();
      return true;
    });
  }

  // Asked without the write lock, because idle workers ask often.
  bool anything_to_claim(const std::string& lane) {
    return reading([&] { return rows_.one("SELECT 1 FROM jobs WHERE state = 'queued' AND lane = ? LIMIT 1", {lane}) != 0; });
  }

  static std::string ended_before(int64_t time) { return fmt::format("finished > 0 AND finished < {}", time); }

  // Final jobs that ended earlier are dropped: they are too old, or there are too many newer ones.
  int64_t oldest_end_kept(int64_t now) {
    return reading([&] {
      const int64_t of_the_last = rows_.one(
          fmt::format("SELECT finished FROM jobs WHERE finished > 0 ORDER BY finished DESC LIMIT 1 OFFSET {}", kKeptJobs - 1));
      return std::max(now - kKeptMs, of_the_last);
    });
  }

  // ---- inside a transaction ----

  // A key counts for 24 hours; then the job that used it lets it go.
  std::optional<Job> first_with_key(const Job& job) const {
    if (job.idempotency_key.empty()) return std::nullopt;
    auto jobs = rows_.select("idempotency_key = ? AND idempotency_key <> '' LIMIT ?", {job.idempotency_key}, 1);
    if (jobs.empty()) return std::nullopt;
    if (jobs[0].created > job.created - kDayMs) return std::move(jobs[0]);
    database_.prepare("UPDATE jobs SET idempotency_key = '' WHERE id = ?").bind(jobs[0].id).run();
    return std::nullopt;
  }

  bool is_cancelled(const std::string& id) const { return rows_.one("SELECT cancel FROM jobs WHERE id = ?", {id}) != 0; }

  void drop_events_until(int64_t id) const { database_.prepare("DELETE FROM events WHERE id <= ?").bind(id).run(); }

  std::mutex mutex_;
  Database database_;
  JobRows rows_;
};

}  // namespace

std::unique_ptr<JobStore> open_sqlite_store(const std::filesystem::path& path) { return std::make_unique<SqliteStore>(path); }

}  // namespace flux2
