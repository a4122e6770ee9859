#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "server/store/sql.h"

namespace flux2 {

// A key that clients send. Only its hash is kept.
struct ApiKey {
  std::string id, name;
  std::string scope;   // generate, manage or admin
  std::string sha256;  // of the secret, 64 hexadecimal digits
  int64_t created = 0;
  int64_t rate = 0, queue = 0, work = 0;  // limits, see server/http/key_limits.h; 0: none of its own
};

// A page that has signed in, by the hash of its cookie.
struct PageSession {
  std::string sha256;
  std::string key;  // the hash of the key it signed in with; empty: no key was needed
  std::string scope;
  int64_t created = 0;  // ms
};

// API keys and sessions of the page. Thread-safe.
class KeyStore {
 public:
  explicit KeyStore(std::shared_ptr<SqlDatabase> database);
  explicit KeyStore(const std::filesystem::path& database);  // flux2.db of the data folder

  struct Added {
    ApiKey key;
    std::string secret;  // shown once
  };
  struct Limits {
    int64_t rate = 0, queue = 0, work = 0;
  };
  Added add(const std::string& name, const std::string& scope, const Limits& limits);
  Added add(const std::string& name, const std::string& scope) { return add(name, scope, {}); }
  std::vector<ApiKey> list() const;    // oldest first
  bool revoke(const std::string& id);  // ends its sessions as well

  void add_session(const PageSession& session);
  void remove_session(const std::string& sha256);
  std::vector<PageSession> sessions() const;
  void prune(int64_t now);  // sessions that are older than 30 days

 private:
  std::shared_ptr<SqlDatabase> database_;
};

constexpr int64_t kSessionMs = int64_t{30} * 86'400'000;

}  // namespace flux2
