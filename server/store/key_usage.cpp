#include "server/store/key_usage.h"

namespace flux2 {

namespace {

constexpr const char* kUsageSteps[] = {
    "CREATE TABLE key_jobs ("
    "  job TEXT PRIMARY KEY, api_key TEXT NOT NULL, work INTEGER NOT NULL, created INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX key_jobs_by_key ON key_jobs (api_key, created)"};

}  // namespace

KeyUsage::KeyUsage(std::shared_ptr<SqlDatabase> database) : database_(std::move(database)) {
  database_->migrate("key usage", kUsageSteps);
}

KeyUsage::Used KeyUsage::used(const std::string& key, int64_t since) const {
  return database_->reading([&](SqlConnection& sql) {
    Used used;
    SqlStatement jobs = sql.prepare(
        "SELECT count(*) FROM key_jobs JOIN jobs ON jobs.id = key_jobs.job "
        "WHERE key_jobs.api_key = ? AND jobs.state IN ('queued', 'running', 'cancelling')");
    jobs.bind(key);
    if (jobs.step()) used.jobs = jobs.integer(0);
    SqlStatement work =
        sql.prepare("SELECT coalesce(sum(work), 0), coalesce(min(created), 0) FROM key_jobs WHERE api_key = ? AND created > ?");
    work.bind(key).bind(since);
    if (work.step()) used.work = work.integer(0), used.oldest = work.integer(1);
    return used;
  });
}

void KeyUsage::add(const std::string& key, const std::string& job, int64_t work, int64_t now) {
  database_->writing([&](SqlConnection& sql) {
    sql.prepare("INSERT INTO key_jobs (job, api_key, work, created) VALUES (?, ?, ?, ?)")
        .bind(job)
        .bind(key)
        .bind(work)
        .bind(now)
        .run();
  });
}

void KeyUsage::prune(int64_t before) {
  database_->writing([&](SqlConnection& sql) {
    sql.prepare(
           "DELETE FROM key_jobs WHERE created < ? AND job NOT IN "
           "(SELECT id FROM jobs WHERE state IN ('queued', 'running', 'cancelling'))")
        .bind(before)
        .run();
  });
}

}  // namespace flux2
