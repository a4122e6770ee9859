#include "server/store/sql_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <set>

#include "base/error.h"
#include "server/store/asset_catalog.h"
#include "server/store/ids.h"
#include "server/store/job_rows.h"
#include "server/store/schema.h"
#include "server/store/sqlite_sql.h"

namespace flux2 {

namespace {

constexpr int64_t kDayMs = 86'400'000;
constexpr int64_t kMayBePassedMs = 60'000;  // a job that has waited longer is not overtaken
constexpr int64_t kLookAhead = 20;
constexpr auto kSlowCall = std::chrono::seconds(2);  // the database was away
constexpr int64_t kKeptJobs = 5000, kKeptMs = 30 * kDayMs;
constexpr int64_t kKeptEvents = 1000, kEventBatch = 100;  // so many events are deleted at a time

// Which of the first waiting jobs runs now. One for a loaded model passes others of its priority that have not waited long.
size_t next_of(const std::vector<Job>& jobs, const LoadedModels& loaded, int64_t now) {
  if (loaded.keys.empty()) return 0;
  for (size_t i = 0; i < jobs.size() && jobs[i].priority == jobs[0].priority; ++i) {
    if (loaded.contains(jobs[i].model_key)) return i;
    if (now - jobs[i].created >= kMayBePassedMs) return 0;
  }
  return 0;
}

// The next job, locked. Several workers may look at the same time: one that another has just taken is left out.
std::optional<Job> take_next(const JobRows& rows, const std::string& lane, const LoadedModels& loaded, int64_t now) {
  if (loaded.keys.empty()) return rows.take_waiting(lane);
  std::vector<Job> jobs = rows.first_waiting(lane, kLookAhead);
  while (!jobs.empty()) {
    const size_t next = next_of(jobs, loaded, now);
    if (auto job = rows.take(jobs[next].id)) return job;
    jobs.erase(jobs.begin() + static_cast<std::ptrdiff_t>(next));
  }
  return rows.take_waiting(lane);
}

class SqlStore : public JobStore {
 public:
  SqlStore(std::shared_ptr<SqlDatabase> database, std::chrono::milliseconds lease)
      : database_(std::move(database)), lease_ms_(lease.count()) {
    migrate_jobs(*database_);
    migrate_studio(*database_);  // images are described when a job delivers them
  }

  Inserted insert(const Job& job, int64_t queue_limit) override {
    return writing([&](const JobRows& rows) -> Inserted {
      rows.sql().lock(SqlConnection::Lock::Order);  // so that the limit, the keys and the places hold for all processes
      Job added = job;
      if (added.created == 0) added.created = now_ms();
      if (auto first = job_with_key(rows, added.idempotency_key)) {
        if (counts_still(*first, added)) return {std::move(*first), true};
        rows.sql().prepare("UPDATE jobs SET idempotency_key = '' WHERE id = ?").bind(first->id).run();
      }
      const Counts there = rows.count(job.lane);
      if (there.running + there.queued >= queue_limit)
        throw Error(ErrorCode::Refused,
                    fmt::format("the queue is full: {} jobs are waiting or running", there.running + there.queued),
                    "try again when some of them have finished");
      added.state = "queued";
      added.seq = rows.one("SELECT coalesce(max(seq), 0) + 1 FROM jobs");
      rows.add(added);
      rows.sql().notify(kWorkSignal, added.lane);
      return {std::move(added), false};
    });
  }

  std::optional<Job> first_with_key(const Job& job) override {
    if (job.idempotency_key.empty()) return std::nullopt;
    auto first = reading([&](const JobRows& rows) { return job_with_key(rows, job.idempotency_key); });
    return first && counts_still(*first, job) ? std::move(first) : std::nullopt;
  }

  std::optional<Job> get(const std::string& id) override {
    return reading([&](const JobRows& rows) { return rows.find(id); });
  }

  std::vector<Job> list(const JobFilter& filter) override {
    std::string where = "TRUE";
    std::vector<std::string> values;
    const auto narrow = [&](const char* condition, const std::string& value) {
      if (value.empty()) return;
      where += fmt::format(" AND {} ?", condition);
      values.push_back(value);
    };
    narrow("state =", filter.state);
    narrow("kind =", filter.kind);
    narrow("project =", filter.project);
    if (filter.default_project) where += " AND project = ''";
    narrow("id <", filter.before);
    return reading(
        [&](const JobRows& rows) { return rows.select(where + " ORDER BY id DESC LIMIT ?", values, std::max(filter.limit, 0)); });
  }

  std::vector<Job> waiting(const std::string& lane) override {
    return reading([&](const JobRows& rows) { return rows.first_waiting(lane, kAllRows); });
  }

  std::optional<Job> claim(const std::string& lane, const std::string& worker, const LoadedModels& loaded, int64_t now) override {
    if (!anything_to_claim(lane)) return std::nullopt;
    return writing([&](const JobRows& rows) -> std::optional<Job> {
      if (rows.is_paused()) return std::nullopt;
      auto job = take_next(rows, lane, loaded, now);
      return job ? std::optional(rows.hold(std::move(*job), worker, now)) : std::nullopt;
    });
  }

  std::optional<Job> claim_like(const std::string& lane, const std::string& merge_key, const std::string& worker,
                                int64_t now) override {
    if (merge_key.empty() || !anything_to_claim(lane)) return std::nullopt;
    return writing([&](const JobRows& rows) -> std::optional<Job> {
      if (rows.is_paused()) return std::nullopt;
      auto job = rows.take_waiting(lane, merge_key);
      return job ? std::optional(rows.hold(std::move(*job), worker, now)) : std::nullopt;
    });
  }

  std::optional<Job> claim_one(const std::string& id, const std::string& worker, int64_t now) override {
    return writing([&](const JobRows& rows) -> std::optional<Job> {
      if (rows.is_paused()) return std::nullopt;
      auto job = rows.take(id);
      return job ? std::optional(rows.hold(std::move(*job), worker, now)) : std::nullopt;
    });
  }

  void renew(const std::string& worker, const std::vector<std::string>& ids, int64_t now) override {
    if (ids.empty()) return;
    writing([&](const JobRows& rows) {
      for (const std::string& id : ids)
        rows.sql()
            .prepare(fmt::format("UPDATE jobs SET lease_until = ? WHERE id = ? AND worker = ? AND {}", kHeld))
            .bind(now + lease_ms_)
            .bind(id)
            .bind(worker)
            .run();
    });
  }

  bool set_progress(const Job& job) override {
    return while_held(job.id, job.worker, [&](const JobRows& rows) { rows.set_progress(job); });
  }

  bool add_image(const std::string& id, const std::string& worker, const JobImage& image) override {
    return while_held(id, worker, [&](const JobRows& rows) {
      rows.add_image(id, image);
      if (const auto job = rows.find(id)) describe_image(rows.sql(), *job, image);
    });
  }

  bool finish(const Job& job) override {
    check(job.is_final(), "a job cannot finish in state \"{}\"", job.state);
    return while_held(job.id, job.worker, [&](const JobRows& rows) { rows.finish(job); });
  }

  bool give_back(const std::string& id, const std::string& worker) override {
    return while_held(id, worker, [&](const JobRows& rows) {
      if (is_cancelled(rows, id)) {
        rows.end(id, "cancelled", now_ms());  // it must not run again
        return;
      }
      rows.requeue(id);
      rows.sql().notify(kWorkSignal, "");
    });
  }

  std::optional<Job> cancel(const std::string& id, int64_t now) override {
    return writing([&](const JobRows& rows) -> std::optional<Job> {
      const auto job = rows.find_and_lock(id);
      if (!job || job->is_final()) return job;
      rows.sql().prepare("UPDATE jobs SET cancel = ?, state = 'cancelling' WHERE id = ?").bind(kAskedToCancel).bind(id).run();
      if (job->state == "queued") rows.end(id, "cancelled", now);
      else rows.sql().notify(kCancelSignal, id);
      return rows.find(id);
    });
  }

  std::optional<Job> pause(const std::string& id, int64_t now) override {
    return writing([&](const JobRows& rows) -> std::optional<Job> {
      const auto job = rows.find_and_lock(id);
      if (!job || job->is_final() || job->cancel) return job;
      rows.sql().prepare("UPDATE jobs SET cancel = ? WHERE id = ?").bind(kAskedToPause).bind(id).run();
      if (job->state == "queued") rows.end(id, "cancelled", now);
      return rows.find(id);
    });
  }

  bool cancel_requested(const std::string& id) override {
    return reading([&](const JobRows& rows) { return is_cancelled(rows, id); });
  }

  bool set_priority(const std::string& id, int priority) override {
    return writing([&](const JobRows& rows) {
      return rows.sql().prepare("UPDATE jobs SET priority = ? WHERE id = ? AND state = 'queued'").bind(priority).bind(id).run() >
             0;
    });
  }

  void reorder(const std::vector<std::string>& ids) override {
    writing([&](const JobRows& rows) {
      rows.sql().lock(SqlConnection::Lock::Order);
      std::map<std::string, std::vector<Job>> lanes;  // in the order asked for
      std::set<std::string> seen;
      for (const std::string& id : ids) {
        auto job = rows.find_and_lock(id);
        if (job && job->state == "queued" && seen.insert(id).second) lanes[job->lane].push_back(std::move(*job));
      }
      for (const auto& [lane, jobs] : lanes) rows.exchange_places(jobs);
    });
  }

  bool remove(const std::string& id) override {
    return writing([&](const JobRows& rows) {
      if (rows.sql().prepare(fmt::format("DELETE FROM jobs WHERE id = ? AND {}", kFinal)).bind(id).run() == 0) return false;
      rows.forget_images(id);
      return true;
    });
  }

  std::vector<Job> recover(int64_t now) override {
    const auto expired = [now](const JobRows& rows, const char* lock) {
      SqlStatement found =
          rows.sql().prepare(fmt::format("SELECT id FROM jobs WHERE {} AND lease_until < ? ORDER BY seq {}", kHeld, lock));
      found.bind(now);
      std::vector<std::string> ids;
      while (found.step()) ids.push_back(found.text(0));
      return ids;
    };
    if (reading([&](const JobRows& rows) { return expired(rows, ""); }).empty()) return {};
    if (was_away()) return {};  // workers that live could not renew their leases either: they get time to do it
    return writing([&](const JobRows& rows) {
      std::vector<Job> recovered;
      for (const std::string& id : expired(rows, rows.sql().locking_free_ones())) {
        Job job = *rows.find(id);
        job.state = "failed";
        job.finished = now;
        job.error = {{"code", "interrupted"},
                     {"message", "the process that ran this job has ended or does not answer"},
                     {"hint", "retry the job"}};
        rows.finish(job);
        recovered.push_back(*rows.find(id));
      }
      return recovered;
    });
  }

  void prune(int64_t now) override {
    const int64_t events_until = last_event() - kKeptEvents, jobs_until = oldest_end_kept(now);
    const bool any = reading([&](const JobRows& rows) {
      return rows.one(fmt::format("SELECT EXISTS (SELECT 1 FROM events WHERE id <= {}) OR EXISTS (SELECT 1 FROM jobs WHERE {})",
                                  events_until, ended_before(jobs_until))) != 0;
    });
    if (!any) return;
    writing([&](const JobRows& rows) {
      SqlConnection& sql = rows.sql();
      sql.run(fmt::format("DELETE FROM job_images WHERE job IN (SELECT id FROM jobs WHERE {})", ended_before(jobs_until)));
      sql.run("DELETE FROM jobs WHERE " + ended_before(jobs_until));
      drop_events_until(rows, events_until);
    });
  }

  Counts counts(const std::string& lane) override {
    return reading([&](const JobRows& rows) { return rows.count(lane); });
  }

  int64_t queue_position(const Job& job) override {
    return reading([&](const JobRows& rows) {
      return rows.one(
          "SELECT (SELECT count(*) FROM jobs o WHERE o.state = 'queued' AND o.lane = j.lane AND (o.priority > j.priority OR "
          "(o.priority = j.priority AND o.seq <= j.seq))) FROM jobs j WHERE j.id = ? AND j.state = 'queued'",
          {job.id});
    });
  }

  bool paused() override {
    return reading([&](const JobRows& rows) { return rows.is_paused(); });
  }

  void set_paused(bool paused) override {
    writing([&](const JobRows& rows) {
      rows.sql()
          .prepare("INSERT INTO settings VALUES ('paused', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value")
          .bind(paused ? "1" : "0")
          .run();
      if (!paused) rows.sql().notify(kWorkSignal, "");
    });
  }

  int64_t add_event(const std::string& name, const std::string& data, int64_t now) override {
    return writing([&](const JobRows& rows) {
      SqlConnection& sql = rows.sql();
      sql.lock(SqlConnection::Lock::Events);  // ids grow in the order in which others see the events
      SqlStatement added = sql.prepare("INSERT INTO events (name, data, at) VALUES (?, ?, ?) RETURNING id");
      added.bind(name).bind(data).bind(now).step();
      const int64_t id = added.integer(0);
      added.run();
      if (id % kEventBatch == 0) drop_events_until(rows, id - kKeptEvents);
      sql.notify(kEventSignal, std::to_string(id));
      return id;
    });
  }

  std::vector<StoredEvent> events_after(int64_t id) override {
    return reading([&](const JobRows& rows) {
      SqlStatement found = rows.sql().prepare("SELECT id, name, data, at FROM events WHERE id > ? ORDER BY id");
      found.bind(id);
      std::vector<StoredEvent> events;
      while (found.step()) events.push_back({found.integer(0), found.text(1), found.text(2), found.integer(3)});
      return events;
    });
  }

  int64_t first_event() override {
    return reading([&](const JobRows& rows) { return rows.one("SELECT coalesce(min(id), 0) FROM events"); });
  }
  int64_t last_event() override {
    return reading([&](const JobRows& rows) { return rows.one("SELECT coalesce(max(id), 0) FROM events"); });
  }

  bool is_available() const override { return database_->is_available(); }
  std::unique_ptr<SqlSignals> signals() override { return database_->signals(); }
  void send(const std::string& kind, const std::string& text) override { database_->send(kind, text); }

 private:
  using Clock = std::chrono::steady_clock;

  // Notes when a call had to wait for the database, or waited in vain.
  class Timed {
   public:
    explicit Timed(std::atomic<Clock::time_point>& trouble) : trouble_(trouble) {}
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;
    ~Timed() {
      const auto now = Clock::now();
      if (now - began_ > kSlowCall) trouble_ = now;
    }

   private:
    std::atomic<Clock::time_point>& trouble_;
    Clock::time_point began_ = Clock::now();
  };

  bool was_away() const {
    const Clock::time_point trouble = trouble_;
    return trouble != Clock::time_point() && Clock::now() - trouble < std::chrono::milliseconds(lease_ms_ / 2);
  }

  template <class Body>
  std::invoke_result_t<Body, const JobRows&> writing(Body&& body) {
    const Timed timed(trouble_);
    return database_->writing([&](SqlConnection& sql) { return body(JobRows(sql, lease_ms_)); });
  }

  template <class Body>
  std::invoke_result_t<Body, const JobRows&> reading(Body&& body) {
    const Timed timed(trouble_);
    return database_->reading([&](SqlConnection& sql) { return body(JobRows(sql, lease_ms_)); });
  }

  template <class Body>
  bool while_held(const std::string& id, const std::string& worker, Body&& body) {
    return writing([&](const JobRows& rows) {
      if (!rows.holds(id, worker)) return false;
      body(rows);
      return true;
    });
  }

  // Asked without the write lock, because idle workers ask often.
  bool anything_to_claim(const std::string& lane) {
    return reading([&](const JobRows& rows) {
      return rows.one("SELECT 1 FROM jobs WHERE state = 'queued' AND lane = ? LIMIT 1", {lane}) != 0;
    });
  }

  static std::string ended_before(int64_t time) { return fmt::format("finished > 0 AND finished < {}", time); }

  // Final jobs that ended earlier are dropped: they are too old, or there are too many newer ones.
  int64_t oldest_end_kept(int64_t now) {
    return reading([&](const JobRows& rows) {
      const int64_t of_the_last = rows.one(
          fmt::format("SELECT finished FROM jobs WHERE finished > 0 ORDER BY finished DESC LIMIT 1 OFFSET {}", kKeptJobs - 1));
      return std::max(now - kKeptMs, of_the_last);
    });
  }

  static std::optional<Job> job_with_key(const JobRows& rows, const std::string& key) {
    if (key.empty()) return std::nullopt;
    auto jobs = rows.select("idempotency_key = ? AND idempotency_key <> '' LIMIT ?", {key}, 1);
    return jobs.empty() ? std::nullopt : std::optional(std::move(jobs[0]));
  }

  // Whether the key of the first job still stands for it: for 24 hours. Then the job lets it go.
  static bool counts_still(const Job& first, const Job& job) {
    if (first.created <= job.created - kDayMs) return false;
    if (first.request_hash != job.request_hash)
      throw Error(ErrorCode::Incompatible, "this idempotency key was used with another request",
                  "use a new key for each request");
    return true;
  }

  static bool is_cancelled(const JobRows& rows, const std::string& id) {
    return rows.one("SELECT cancel FROM jobs WHERE id = ?", {id}) != 0;
  }

  static void drop_events_until(const JobRows& rows, int64_t id) {
    rows.sql().prepare("DELETE FROM events WHERE id <= ?").bind(id).run();
  }

  std::shared_ptr<SqlDatabase> database_;
  int64_t lease_ms_;
  std::atomic<Clock::time_point> trouble_ = Clock::time_point();
};

}  // namespace

std::unique_ptr<JobStore> open_job_store(std::shared_ptr<SqlDatabase> database, std::chrono::milliseconds lease) {
  return std::make_unique<SqlStore>(std::move(database), lease);
}

std::unique_ptr<JobStore> open_sqlite_store(const std::filesystem::path& path) { return open_job_store(open_sqlite(path)); }

}  // namespace flux2
