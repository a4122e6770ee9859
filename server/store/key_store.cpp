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
constexpr int64_t kNoteEveryMs = 60'000;  // the time of the last use is not written more often

std::string secret_hash(std::string_view secret) { return sha256(std::as_bytes(std::span(secret))); }

void check_scope(const std::string& scope) {
  check(scope == "generate" || scope == "manage" || scope == "admin", "the scope \"{}\" is not generate, manage or admin", scope);
}

ApiKey read_key(const Statement& row) { return {row.text(0), row.text(1), row.text(2), row.integer(3), row.integer(4)}; }

}  // namespace

KeyStore::KeyStore(const std::filesystem::path& database) : database_(database, Database::Access::Write) {
  retried_while_busy([&] { migrate_access(database_); });
}

KeyStore::Added KeyStore::add(const std::string& name, const std::string& scope) {
  check_scope(scope);
  check(!name.empty() && name.size() <= 200, "the name of a key has 1 to 200 bytes");
  Added added{{.id = new_id(), .name = name, .scope = scope, .created = now_ms()}, "flux2_" + random_token(kSecretBytes)};
  const std::lock_guard lock(mutex_);
  in_transaction(database_, [&] {
    database_.prepare("INSERT INTO api_keys (id, hash, name, scope, created, used) VALUES (?, ?, ?, ?, ?, 0)")
        .bind(added.key.id)
        .bind(secret_hash(added.secret))
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
    Statement rows = database_.prepare("SELECT id, name, scope, created, used FROM api_keys ORDER BY id");
    while (rows.step()) keys.push_back(read_key(rows));
    return keys;
  });
}

bool KeyStore::revoke(const std::string& id) {
  const std::lock_guard lock(mutex_);
  return in_transaction(database_, [&] {
    database_.prepare("DELETE FROM api_keys WHERE id = ?").bind(id).run();
    if (database_.changes() == 0) return false;
    database_.prepare("DELETE FROM sessions WHERE key = ?").bind(id).run();
    return true;
  });
}

bool KeyStore::empty() const {
  const std::lock_guard lock(mutex_);
  return retried_while_busy([&] { return !database_.prepare("SELECT 1 FROM api_keys LIMIT 1").step(); });
}

std::optional<ApiKey> KeyStore::find(std::string_view secret, int64_t now) {
  const std::lock_guard lock(mutex_);
  auto key = retried_while_busy([&]() -> std::optional<ApiKey> {
    // The secret is random and looked up by its hash, so the time that this takes tells nothing about it.
    Statement row = database_.prepare("SELECT id, name, scope, created, used FROM api_keys WHERE hash = ?");
    row.bind(secret_hash(secret));
    return row.step() ? std::optional(read_key(row)) : std::nullopt;
  });
  if (!key || now - key->used < kNoteEveryMs) return key;
  key->used = now;
  in_transaction(database_,
                 [&] { database_.prepare("UPDATE api_keys SET used = ? WHERE id = ?").bind(now).bind(key->id).run(); });
  return key;
}

std::string KeyStore::begin_session(const std::string& key, const std::string& scope, int64_t now) {
  check_scope(scope);
  const std::string cookie = random_token(kSecretBytes);
  const std::lock_guard lock(mutex_);
  in_transaction(database_, [&] {
    database_.prepare("INSERT INTO sessions (hash, key, scope, created, seen) VALUES (?, ?, ?, ?, ?)")
        .bind(secret_hash(cookie))
        .bind(key)
        .bind(scope)
        .bind(now)
        .bind(now)
        .run();
  });
  return cookie;
}

std::optional<PageSession> KeyStore::session(std::string_view cookie, int64_t now) {
  const std::string hash = secret_hash(cookie);
  const std::lock_guard lock(mutex_);
  auto session = retried_while_busy([&]() -> std::optional<PageSession> {
    Statement row = database_.prepare("SELECT key, scope, created, seen FROM sessions WHERE hash = ? AND created > ?");
    row.bind(hash).bind(now - kSessionMs);
    if (!row.step()) return std::nullopt;
    return PageSession{row.text(0), row.text(1), row.integer(2), row.integer(3)};
  });
  if (!session || now - session->seen < kNoteEveryMs) return session;
  session->seen = now;
  in_transaction(database_, [&] { database_.prepare("UPDATE sessions SET seen = ? WHERE hash = ?").bind(now).bind(hash).run(); });
  return session;
}

bool KeyStore::end_session(std::string_view cookie) {
  const std::lock_guard lock(mutex_);
  return in_transaction(database_, [&] {
    database_.prepare("DELETE FROM sessions WHERE hash = ?").bind(secret_hash(cookie)).run();
    return database_.changes() > 0;
  });
}

void KeyStore::prune(int64_t now) {
  const std::lock_guard lock(mutex_);
  in_transaction(database_, [&] { database_.prepare("DELETE FROM sessions WHERE created <= ?").bind(now - kSessionMs).run(); });
}

}  // namespace flux2
