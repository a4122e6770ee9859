#include "server/store/key_store.h"

#include <span>

#include "base/error.h"
#include "base/sha256.h"
#include "server/store/busy_retry.h"
#include "server/store/ids.h"
#include "server/store/schema.h"

namespace flux2 {

namespace {

constexpr size_t kSecretBytes = 32;

std::string secret_hash(std::string_view secret) { return sha256(std::as_bytes(std::span(secret))); }

void check_scope(const std::string& scope) {
  check(scope == "generate" || scope == "manage" || scope == "admin", "the scope \"{}\" is not generate, manage or admin", scope);
}

ApiKey read_key(const Statement& row) { return {row.text(0), row.text(1), row.text(2), row.text(3), row.integer(4)}; }

}  // namespace

KeyStore::KeyStore(const std::filesystem::path& database) : database_(database, Database::Access::Write) {
  retried_while_busy([&] { migrate_access(database_); });
}

KeyStore::Added KeyStore::add(const std::string& name, const std::string& scope) {
  check_scope(scope);
  check(!name.empty() && name.size() <= 200, "the name of a key has 1 to 200 bytes");
  Added added{{.id = new_id(), .name = name, .scope = scope, .created = now_ms()}, "flux2_" + random_token(kSecretBytes)};
  added.key.sha256 = secret_hash(added.secret);
  const std::lock_guard lock(mutex_);
  in_transaction(database_, [&] {
    database_.prepare("INSERT INTO api_keys (id, hash, name, scope, created, used) VALUES (?, ?, ?, ?, ?, 0)")
        .bind(added.key.id)
        .bind(added.key.sha256)
        .bind(name)
        .bind(scope)
        .bind(added.key.created)
        .run();
  });
  return added;
}

std::vector<ApiKey> KeyStore::list() const {
  const std::lock_guard lock(mutex_);
  return retried_while_busy([&] {
    std::vector<ApiKey> keys;
    Statement rows = database_.prepare("SELECT id, name, scope, hash, created FROM api_keys ORDER BY id");
    while (rows.step()) keys.push_back(read_key(rows));
    return keys;
  });
}

bool KeyStore::revoke(const std::string& id) {
  const std::lock_guard lock(mutex_);
  return in_transaction(database_, [&] {
    database_.prepare("DELETE FROM sessions WHERE key IN (SELECT hash FROM api_keys WHERE id = ?)").bind(id).run();
    database_.prepare("DELETE FROM api_keys WHERE id = ?").bind(id).run();
    return database_.changes() > 0;
  });
}

void KeyStore::add_session(const PageSession& session) {
  check_scope(session.scope);
  const std::lock_guard lock(mutex_);
  in_transaction(database_, [&] {
    database_.prepare("INSERT INTO sessions (hash, key, scope, created, seen) VALUES (?, ?, ?, ?, ?)")
        .bind(session.sha256)
        .bind(session.key)
        .bind(session.scope)
        .bind(session.created)
        .bind(session.created)
        .run();
  });
}

void KeyStore::remove_session(const std::string& sha256) {
  const std::lock_guard lock(mutex_);
  in_transaction(database_, [&] { database_.prepare("DELETE FROM sessions WHERE hash = ?").bind(sha256).run(); });
}

std::vector<PageSession> KeyStore::sessions() const {
  const std::lock_guard lock(mutex_);
  return retried_while_busy([&] {
    std::vector<PageSession> found;
    Statement rows = database_.prepare("SELECT hash, key, scope, created FROM sessions");
    while (rows.step()) found.push_back({rows.text(0), rows.text(1), rows.text(2), rows.integer(3)});
    return found;
  });
}

void KeyStore::prune(int64_t now) {
  const std::lock_guard lock(mutex_);
  in_transaction(database_, [&] { database_.prepare("DELETE FROM sessions WHERE created <= ?").bind(now - kSessionMs).run(); });
}

}  // namespace flux2
