#include "server/store/key_store.h"

#include <span>

#include "base/error.h"
#include "base/sha256.h"
#include "server/store/ids.h"
#include "server/store/schema.h"
#include "server/store/sqlite_sql.h"

namespace flux2 {

namespace {

constexpr size_t kSecretBytes = 32;

std::string secret_hash(std::string_view secret) { return sha256(std::as_bytes(std::span(secret))); }

void check_scope(const std::string& scope) {
  check(scope == "generate" || scope == "manage" || scope == "admin", "the scope \"{}\" is not generate, manage or admin", scope);
}

ApiKey read_key(const SqlStatement& row) {
  return {row.text(0), row.text(1), row.text(2), row.text(3), row.integer(4), row.integer(5), row.integer(6), row.integer(7)};
}

}  // namespace

KeyStore::KeyStore(std::shared_ptr<SqlDatabase> database) : database_(std::move(database)) { migrate_access(*database_); }

KeyStore::KeyStore(const std::filesystem::path& database) : KeyStore(open_sqlite(database)) {}

KeyStore::Added KeyStore::add(const std::string& name, const std::string& scope, const Limits& limits) {
  check_scope(scope);
  check(limits.rate >= 0 && limits.queue >= 0 && limits.work >= 0, "a limit of a key cannot be negative");
  check(!name.empty() && name.size() <= 200, "the name of a key has 1 to 200 bytes");
  Added added;
  added.secret = "flux2_" + random_token(kSecretBytes);
  added.key.id = new_id();
  added.key.name = name;
  added.key.scope = scope;
  added.key.created = now_ms();
  added.key.rate = limits.rate;
  added.key.queue = limits.queue;
  added.key.work = limits.work;
  added.key.sha256 = secret_hash(added.secret);
  database_->writing([&](SqlConnection& sql) {
    sql.prepare(
           "INSERT INTO api_keys (id, hash, name, scope, created, used, rate, queue, work) VALUES (?, ?, ?, ?, ?, 0, ?, ?, ?)")
        .bind(added.key.id)
        .bind(added.key.sha256)
        .bind(name)
        .bind(scope)
        .bind(added.key.created)
        .bind(limits.rate)
        .bind(limits.queue)
        .bind(limits.work)
        .run();
  });
  return added;
}

std::vector<ApiKey> KeyStore::list() const {
  return database_->reading([&](SqlConnection& sql) {
    std::vector<ApiKey> keys;
    SqlStatement rows = sql.prepare("SELECT id, name, scope, hash, created, rate, queue, work FROM api_keys ORDER BY id");
    while (rows.step()) keys.push_back(read_key(rows));
    return keys;
  });
}

bool KeyStore::revoke(const std::string& id) {
  return database_->writing([&](SqlConnection& sql) {
    sql.prepare("DELETE FROM sessions WHERE key IN (SELECT hash FROM api_keys WHERE id = ?)").bind(id).run();
    return sql.prepare("DELETE FROM api_keys WHERE id = ?").bind(id).run() > 0;
  });
}

void KeyStore::add_session(const PageSession& session) {
  check_scope(session.scope);
  database_->writing([&](SqlConnection& sql) {
    sql.prepare("INSERT INTO sessions (hash, key, scope, created, seen) VALUES (?, ?, ?, ?, ?)")
        .bind(session.sha256)
        .bind(session.key)
        .bind(session.scope)
        .bind(session.created)
        .bind(session.created)
        .run();
  });
}

void KeyStore::remove_session(const std::string& sha256) {
  database_->writing([&](SqlConnection& sql) { sql.prepare("DELETE FROM sessions WHERE hash = ?").bind(sha256).run(); });
}

std::vector<PageSession> KeyStore::sessions() const {
  return database_->reading([&](SqlConnection& sql) {
    std::vector<PageSession> found;
    SqlStatement rows = sql.prepare("SELECT hash, key, scope, created FROM sessions");
    while (rows.step()) found.push_back({rows.text(0), rows.text(1), rows.text(2), rows.integer(3)});
    return found;
  });
}

void KeyStore::prune(int64_t now) {
  database_->writing(
      [&](SqlConnection& sql) { sql.prepare("DELETE FROM sessions WHERE created <= ?").bind(now - kSessionMs).run(); });
}

}  // namespace flux2
