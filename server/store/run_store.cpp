#include "server/store/run_store.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace flux2 {

namespace {

constexpr const char* kRunColumns =
    "id, name, state, request, folder, job, wish, figures, error, step, steps, created, started, finished";

std::string json_text(const Json& value) {
  return value.is_null() ? "" : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json json_in(const std::string& text) { return text.empty() ? Json(nullptr) : parse_json(text); }

Run read_run(const SqlStatement& row) {
  Run run;
  run.id = row.text(0);
  run.name = row.text(1);
  run.state = row.text(2);
  run.request = json_in(row.text(3));
  run.folder = row.text(4);
  run.job = row.text(5);
  run.wish = row.text(6);
  run.figures = json_in(row.text(7));
  run.error = json_in(row.text(8));
  run.step = row.integer(9);
  run.steps = row.integer(10);
  run.created = row.integer(11);
  run.started = row.integer(12);
  run.finished = row.integer(13);
  return run;
}

std::vector<Run> all_runs(SqlStatement rows) {
  std::vector<Run> runs;
  while (rows.step()) runs.push_back(read_run(rows));
  return runs;
}

// Databases differ in what they make of NaN. An unknown number is stored as one that no metric has.
constexpr double kUnknownNumber = -1e30, kKnownAbove = -1e29;

double stored_number(double value) { return std::isfinite(value) ? value : kUnknownNumber; }
double loaded_number(double value) { return value > kKnownAbove ? value : std::numeric_limits<double>::quiet_NaN(); }

constexpr const char* kTrainingSteps[] = {
    "CREATE TABLE runs ("
    "  id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, state TEXT NOT NULL, request TEXT NOT NULL, folder TEXT NOT NULL,"
    "  job TEXT NOT NULL, wish TEXT NOT NULL, figures TEXT NOT NULL, error TEXT NOT NULL, step INTEGER NOT NULL,"
    "  steps INTEGER NOT NULL, created INTEGER NOT NULL, started INTEGER NOT NULL, finished INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE run_metrics ("
    "  run TEXT NOT NULL, step INTEGER NOT NULL, loss REAL NOT NULL, loss_avg REAL NOT NULL, lr REAL NOT NULL,"
    "  grad_norm REAL NOT NULL, it_per_s REAL NOT NULL, device_gib REAL NOT NULL, PRIMARY KEY (run, step)) WITHOUT ROWID;"
    "CREATE TABLE run_samples ("
    "  run TEXT NOT NULL, step INTEGER NOT NULL, idx INTEGER NOT NULL, asset TEXT NOT NULL, prompt TEXT NOT NULL,"
    "  seed INTEGER NOT NULL, PRIMARY KEY (run, step, idx)) WITHOUT ROWID;"
    "CREATE TABLE run_checkpoints ("
    "  run TEXT NOT NULL, step INTEGER NOT NULL, epoch INTEGER NOT NULL, path TEXT NOT NULL, sha256 TEXT NOT NULL,"
    "  bytes INTEGER NOT NULL, kept INTEGER NOT NULL, PRIMARY KEY (run, path)) WITHOUT ROWID"};

}  // namespace

RunStore::RunStore(SqlDatabase& database) : database_(database) { database.migrate("training", kTrainingSteps); }

void RunStore::insert(const Run& run) {
  database_.writing([&](SqlConnection& sql) {
    SqlStatement same = sql.prepare("SELECT 1 FROM runs WHERE name = ?");
    if (same.bind(run.name).step())
      throw Error(ErrorCode::Refused, fmt::format("another training run has the name \"{}\"", run.name), "choose another name");
    sql.prepare(fmt::format("INSERT INTO runs ({}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", kRunColumns))
        .bind(run.id)
        .bind(run.name)
        .bind(run.state)
        .bind(json_text(run.request))
        .bind(run.folder)
        .bind(run.job)
        .bind(run.wish)
        .bind(json_text(run.figures))
        .bind(json_text(run.error))
        .bind(run.step)
        .bind(run.steps)
        .bind(run.created)
        .bind(run.started)
        .bind(run.finished)
        .run();
  });
}

void RunStore::remove(const std::string& id) {
  database_.writing([&](SqlConnection& sql) { sql.prepare("DELETE FROM runs WHERE id = ?").bind(id).run(); });
}

std::optional<Run> RunStore::get(const std::string& id) {
  return database_.reading([&](SqlConnection& sql) -> std::optional<Run> {
    SqlStatement row = sql.prepare(fmt::format("SELECT {} FROM runs WHERE id = ?", kRunColumns));
    if (!row.bind(id).step()) return std::nullopt;
    return read_run(row);
  });
}

std::optional<Run> RunStore::find(const std::string& name) {
  return database_.reading([&](SqlConnection& sql) -> std::optional<Run> {
    SqlStatement row = sql.prepare(fmt::format("SELECT {} FROM runs WHERE name = ?", kRunColumns));
    if (!row.bind(name).step()) return std::nullopt;
    return read_run(row);
  });
}

std::vector<Run> RunStore::list(const std::string& before, int limit) {
  return database_.reading([&](SqlConnection& sql) {
    SqlStatement rows =
        sql.prepare(fmt::format("SELECT {} FROM runs WHERE (? = '' OR id < ?) ORDER BY id DESC LIMIT ?", kRunColumns));
    rows.bind(before).bind(before).bind(int64_t{limit});
    return all_runs(std::move(rows));
  });
}

std::vector<Run> RunStore::unfinished() {
  return database_.reading([&](SqlConnection& sql) {
    return all_runs(sql.prepare(fmt::format(
        "SELECT {} FROM runs WHERE state IN ('preparing', 'caching', 'running', 'paused', 'saving') ORDER BY id", kRunColumns)));
  });
}

void RunStore::save(const Run& run) {
  database_.writing([&](SqlConnection& sql) {
    sql.prepare("UPDATE runs SET state = ?, figures = ?, error = ?, step = ?, steps = ?, started = ?, finished = ? WHERE id = ?")
        .bind(run.state)
        .bind(json_text(run.figures))
        .bind(json_text(run.error))
        .bind(run.step)
        .bind(run.steps)
        .bind(run.started)
        .bind(run.finished)
        .bind(run.id)
        .run();
  });
}

void RunStore::set_job(const std::string& id, const std::string& job) {
  database_.writing([&](SqlConnection& sql) { sql.prepare("UPDATE runs SET job = ? WHERE id = ?").bind(job).bind(id).run(); });
}

bool RunStore::replace_job(const std::string& id, const std::string& before, const std::string& now) {
  return database_.writing([&](SqlConnection& sql) {
    return sql.prepare("UPDATE runs SET job = ? WHERE id = ? AND job = ?").bind(now).bind(id).bind(before).run() > 0;
  });
}

void RunStore::set_wish(const std::string& id, const std::string& wish) {
  database_.writing([&](SqlConnection& sql) { sql.prepare("UPDATE runs SET wish = ? WHERE id = ?").bind(wish).bind(id).run(); });
}

std::string RunStore::wish(const std::string& id) {
  return database_.reading([&](SqlConnection& sql) {
    SqlStatement row = sql.prepare("SELECT wish FROM runs WHERE id = ?");
    return row.bind(id).step() ? row.text(0) : std::string();
  });
}

void RunStore::set_request(const std::string& id, const Json& request) {
  database_.writing([&](SqlConnection& sql) {
    sql.prepare("UPDATE runs SET request = ? WHERE id = ?").bind(json_text(request)).bind(id).run();
  });
}

void RunStore::add_metrics(const std::string& run, std::span<const RunMetric> metrics) {
  if (metrics.empty()) return;
  database_.writing([&](SqlConnection& sql) {
    for (const RunMetric& m : metrics)
      sql.prepare(
             "INSERT INTO run_metrics (run, step, loss, loss_avg, lr, grad_norm, it_per_s, device_gib) "
             "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run, step) DO UPDATE SET loss = excluded.loss, "
             "loss_avg = excluded.loss_avg, lr = excluded.lr, grad_norm = excluded.grad_norm, it_per_s = excluded.it_per_s, "
             "device_gib = excluded.device_gib")
          .bind(run)
          .bind(m.step)
          .bind_real(stored_number(m.loss))
          .bind_real(stored_number(m.loss_avg))
          .bind_real(stored_number(m.lr))
          .bind_real(stored_number(m.grad_norm))
          .bind_real(stored_number(m.it_per_s))
          .bind_real(stored_number(m.device_gib))
          .run();
  });
}

void RunStore::drop_metrics_after(const std::string& run, int64_t step) {
  database_.writing(
      [&](SqlConnection& sql) { sql.prepare("DELETE FROM run_metrics WHERE run = ? AND step > ?").bind(run).bind(step).run(); });
}

std::vector<RunMetric> RunStore::metrics(const std::string& run, int64_t from, int64_t to) {
  return database_.reading([&](SqlConnection& sql) {
    SqlStatement rows = sql.prepare(
        "SELECT step, loss, loss_avg, lr, grad_norm, it_per_s, device_gib FROM run_metrics "
        "WHERE run = ? AND step >= ? AND step <= ? ORDER BY step");
    rows.bind(run).bind(from).bind(to);
    std::vector<RunMetric> metrics;
    while (rows.step())
      metrics.push_back({.step = rows.integer(0),
                         .loss = loaded_number(rows.real(1)),
                         .loss_avg = loaded_number(rows.real(2)),
                         .lr = loaded_number(rows.real(3)),
                         .grad_norm = loaded_number(rows.real(4)),
                         .it_per_s = loaded_number(rows.real(5)),
                         .device_gib = loaded_number(rows.real(6))});
    return metrics;
  });
}

void RunStore::add_sample(const std::string& run, const StoredSample& sample) {
  database_.writing([&](SqlConnection& sql) {
    sql.prepare(
           "INSERT INTO run_samples (run, step, idx, asset, prompt, seed) VALUES (?, ?, ?, ?, ?, ?) "
           "ON CONFLICT (run, step, idx) DO UPDATE SET asset = excluded.asset, prompt = excluded.prompt, seed = excluded.seed")
        .bind(run)
        .bind(sample.step)
        .bind(sample.index)
        .bind(sample.asset)
        .bind(sample.prompt)
        .bind(static_cast<int64_t>(sample.seed))
        .run();
  });
}

std::vector<StoredSample> RunStore::samples(const std::string& run) {
  return database_.reading([&](SqlConnection& sql) {
    SqlStatement rows = sql.prepare("SELECT step, idx, asset, prompt, seed FROM run_samples WHERE run = ? ORDER BY step, idx");
    rows.bind(run);
    std::vector<StoredSample> samples;
    while (rows.step())
      samples.push_back({.step = rows.integer(0),
                         .index = rows.integer(1),
                         .asset = rows.text(2),
                         .prompt = rows.text(3),
                         .seed = static_cast<uint64_t>(rows.integer(4))});
    return samples;
  });
}

void RunStore::add_checkpoint(const std::string& run, const StoredCheckpoint& checkpoint) {
  database_.writing([&](SqlConnection& sql) {
    sql.prepare(
           "INSERT INTO run_checkpoints (run, step, epoch, path, sha256, bytes, kept) VALUES (?, ?, ?, ?, ?, ?, ?) "
           "ON CONFLICT (run, path) DO UPDATE SET step = excluded.step, epoch = excluded.epoch, sha256 = excluded.sha256, "
           "bytes = excluded.bytes, kept = excluded.kept")
        .bind(run)
        .bind(checkpoint.step)
        .bind(checkpoint.epoch)
        .bind(checkpoint.path)
        .bind(checkpoint.sha256)
        .bind(checkpoint.bytes)
        .bind(int64_t{checkpoint.kept})
        .run();
  });
}

std::vector<StoredCheckpoint> RunStore::checkpoints(const std::string& run) {
  return database_.reading([&](SqlConnection& sql) {
    SqlStatement rows =
        sql.prepare("SELECT step, epoch, path, sha256, bytes, kept FROM run_checkpoints WHERE run = ? ORDER BY step, path");
    rows.bind(run);
    std::vector<StoredCheckpoint> checkpoints;
    while (rows.step())
      checkpoints.push_back({.step = rows.integer(0),
                             .epoch = rows.integer(1),
                             .path = rows.text(2),
                             .sha256 = rows.text(3),
                             .bytes = rows.integer(4),
                             .kept = rows.integer(5) != 0});
    return checkpoints;
  });
}

void RunStore::remove_checkpoint(const std::string& run, const std::string& path) {
  database_.writing([&](SqlConnection& sql) {
    sql.prepare("DELETE FROM run_checkpoints WHERE run = ? AND path = ?").bind(run).bind(path).run();
  });
}

}  // namespace flux2
