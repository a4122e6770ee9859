#include "server/store/job_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/store/ids.h"

namespace flux2 {

namespace {

constexpr const char* kColumns =
    "id, project, kind, state, priority, seq, lane, model_key, merge_key, request, resolved, result, error, phase, step, steps, "
    "progress, message, client_ref, idempotency_key, request_hash, retry_of, worker, lease_until, cancel, created, started, "
    "finished";
constexpr int kColumnCount = 28;

// Null is stored as ''. Bytes that are no UTF-8 are replaced.
std::string stored(const Json& value) {
  return value.is_null() ? std::string() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}
Json loaded(const std::string& text) { return text.empty() ? Json(nullptr) : parse_json(text); }

Job read_job(const SqlStatement& row) {
  Job job;
  job.id = row.text(0);
  job.project = row.text(1);
  job.kind = row.text(2);
  job.state = row.text(3);
  job.priority = static_cast<int>(row.integer(4));
  job.seq = row.integer(5);
  job.lane = row.text(6);
  job.model_key = row.text(7);
  job.merge_key = row.text(8);
  job.request = loaded(row.text(9));
  job.resolved = loaded(row.text(10));
  job.result = loaded(row.text(11));
  job.error = loaded(row.text(12));
  job.phase = row.text(13);
  job.step = static_cast<int>(row.integer(14));
  job.steps = static_cast<int>(row.integer(15));
  job.progress = row.real(16);
  job.message = row.text(17);
  job.client_ref = row.text(18);
  job.idempotency_key = row.text(19);
  job.request_hash = row.text(20);
  job.retry_of = row.text(21);
  job.worker = row.text(22);
  job.lease_until = row.integer(23);
  job.cancel = row.integer(24) != 0;
  job.pause = row.integer(24) == kAskedToPause;
  job.created = row.integer(25);
  job.started = row.integer(26);
  job.finished = row.integer(27);
  return job;
}

}  // namespace

int64_t JobRows::one(std::string_view sql, const std::vector<std::string>& values) const {
  SqlStatement row = sql_.prepare(sql);
  for (const std::string& value : values) row.bind(value);
  return row.step() ? row.integer(0) : 0;
}

std::vector<Job> JobRows::select(const std::string& condition, const std::vector<std::string>& values, int64_t limit) const {
  SqlStatement rows = sql_.prepare(fmt::format("SELECT {} FROM jobs WHERE {}", kColumns, condition));
  for (const std::string& value : values) rows.bind(value);
  rows.bind(limit);
  std::vector<Job> jobs;
  while (rows.step()) jobs.push_back(read_job(rows));
  for (Job& job : jobs) job.images = images_of(job.id);
  return jobs;
}

std::vector<JobImage> JobRows::images_of(const std::string& id) const {
  SqlStatement rows = sql_.prepare("SELECT idx, asset, seed, width, height FROM job_images WHERE job = ? ORDER BY idx");
  rows.bind(id);
  std::vector<JobImage> images;
  while (rows.step())
    images.push_back({static_cast<int>(rows.integer(0)), rows.text(1), static_cast<uint64_t>(rows.integer(2)),
                      static_cast<int>(rows.integer(3)), static_cast<int>(rows.integer(4))});
  return images;
}

std::optional<Job> JobRows::find(const std::string& id) const {
  auto jobs = select("id = ? LIMIT ?", {id}, 1);
  return jobs.empty() ? std::nullopt : std::optional(std::move(jobs[0]));
}

std::optional<Job> JobRows::find_and_lock(const std::string& id) const {
  auto jobs = select(fmt::format("id = ? LIMIT ? {}", sql_.locking()), {id}, 1);
  return jobs.empty() ? std::nullopt : std::optional(std::move(jobs[0]));
}

std::optional<Job> JobRows::take_waiting(const std::string& lane, const std::string& merge_key) const {
  std::string condition = "state = 'queued' AND lane = ?";
  std::vector<std::string> values = {lane};
  if (!merge_key.empty()) {
    condition += " AND merge_key = ?";
    values.push_back(merge_key);
  }
  auto jobs = select(fmt::format("{} ORDER BY priority DESC, seq LIMIT ? {}", condition, sql_.locking_free_ones()), values, 1);
  return jobs.empty() ? std::nullopt : std::optional(std::move(jobs[0]));
}

std::optional<Job> JobRows::take(const std::string& id) const {
  auto jobs = select(fmt::format("id = ? AND state = 'queued' LIMIT ? {}", sql_.locking_free_ones()), {id}, 1);
  return jobs.empty() ? std::nullopt : std::optional(std::move(jobs[0]));
}

std::vector<Job> JobRows::first_waiting(const std::string& lane, int64_t limit) const {
  return select("state = 'queued' AND lane = ? ORDER BY priority DESC, seq LIMIT ?", {lane}, limit);
}

JobStore::Counts JobRows::count(const std::string& lane) const {
  return {one(fmt::format("SELECT count(*) FROM jobs WHERE {} AND lane = ?", kHeld), {lane}),
          one("SELECT count(*) FROM jobs WHERE state = 'queued' AND lane = ?", {lane})};
}

bool JobRows::is_paused() const { return one("SELECT value FROM settings WHERE key = 'paused'") != 0; }

bool JobRows::holds(const std::string& id, const std::string& worker) const {
  return one(fmt::format("SELECT 1 FROM jobs WHERE id = ? AND worker = ? AND {} {}", kHeld, sql_.locking()), {id, worker}) != 0;
}

void JobRows::add(const Job& job) const {
  std::string marks = "?";
  for (int i = 1; i < kColumnCount; ++i) marks += ", ?";
  sql_.prepare(fmt::format("INSERT INTO jobs ({}) VALUES ({})", kColumns, marks))
      .bind(job.id)
      .bind(job.project)
      .bind(job.kind)
      .bind(job.state)
      .bind(job.priority)
      .bind(job.seq)
      .bind(job.lane)
      .bind(job.model_key)
      .bind(job.merge_key)
      .bind(stored(job.request))
      .bind(stored(job.resolved))
      .bind(stored(job.result))
      .bind(stored(job.error))
      .bind(job.phase)
      .bind(job.step)
      .bind(job.steps)
      .bind_real(job.progress)
      .bind(job.message)
      .bind(job.client_ref)
      .bind(job.idempotency_key)
      .bind(job.request_hash)
      .bind(job.retry_of)
      .bind(job.worker)
      .bind(job.lease_until)
      .bind(job.pause    ? kAskedToPause
            : job.cancel ? kAskedToCancel
                         : 0)
      .bind(job.created)
      .bind(job.started)
      .bind(job.finished)
      .run();
}

Job JobRows::hold(Job job, const std::string& worker, int64_t now) const {
  job.state = "running";
  job.worker = worker;
  job.started = now;
  job.lease_until = now + lease_ms_;
  sql_.prepare("UPDATE jobs SET state = 'running', worker = ?, started = ?, lease_until = ? WHERE id = ?")
      .bind(worker)
      .bind(now)
      .bind(job.lease_until)
      .bind(job.id)
      .run();
  return job;
}

void JobRows::set_progress(const Job& job) const {
  sql_.prepare("UPDATE jobs SET phase = ?, message = ?, step = ?, steps = ?, progress = ?, resolved = ? WHERE id = ?")
      .bind(job.phase)
      .bind(job.message)
      .bind(job.step)
      .bind(job.steps)
      .bind_real(job.progress)
      .bind(stored(job.resolved))
      .bind(job.id)
      .run();
}

void JobRows::finish(const Job& job) const {
  end(job.id, job.state.c_str(), job.finished != 0 ? job.finished : now_ms());
  sql_.prepare("UPDATE jobs SET error = ?, result = ? WHERE id = ?")
      .bind(stored(job.error))
      .bind(stored(job.result))
      .bind(job.id)
      .run();
  if (!job.resolved.is_null())
    sql_.prepare("UPDATE jobs SET resolved = ? WHERE id = ?").bind(stored(job.resolved)).bind(job.id).run();
  if (job.state == "completed") sql_.prepare("UPDATE jobs SET progress = 1, step = steps WHERE id = ?").bind(job.id).run();
}

void JobRows::end(const std::string& id, const char* state, int64_t now) const {
  sql_.prepare("UPDATE jobs SET state = ?, phase = '', message = '', lease_until = 0, finished = ? WHERE id = ?")
      .bind(state)
      .bind(now)
      .bind(id)
      .run();
}

void JobRows::requeue(const std::string& id) const {
  sql_.prepare(
          "UPDATE jobs SET state = 'queued', worker = '', lease_until = 0, started = 0, phase = '', message = '', "
          "step = 0, progress = 0 WHERE id = ?")
      .bind(id)
      .run();
  forget_images(id);
}

void JobRows::add_image(const std::string& id, const JobImage& image) const {
  sql_.prepare(
          "INSERT INTO job_images VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (job, idx) DO UPDATE SET "
          "asset = excluded.asset, seed = excluded.seed, width = excluded.width, height = excluded.height")
      .bind(id)
      .bind(image.index)
      .bind(image.asset)
      .bind(static_cast<int64_t>(image.seed))
      .bind(image.width)
      .bind(image.height)
      .run();
}

void JobRows::forget_images(const std::string& id) const { sql_.prepare("DELETE FROM job_images WHERE job = ?").bind(id).run(); }

// A place is a priority and a seq. A seq is unique at every moment, so all of them are freed first.
void JobRows::exchange_places(const std::vector<Job>& jobs) const {
  std::vector<std::pair<int64_t, int64_t>> places;  // −priority, seq: they sort in the order of running
  for (const Job& job : jobs) {
    places.emplace_back(-int64_t{job.priority}, job.seq);
    sql_.prepare("UPDATE jobs SET seq = -seq WHERE id = ?").bind(job.id).run();
  }
  std::sort(places.begin(), places.end());
  for (size_t i = 0; i < jobs.size(); ++i)
    sql_.prepare("UPDATE jobs SET priority = ?, seq = ? WHERE id = ?")
        .bind(-places[i].first)
        .bind(places[i].second)
        .bind(jobs[i].id)
        .run();
}

}  // namespace flux2
