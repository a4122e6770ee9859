#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/registry/database.h"

namespace flux2 {

// Who may use the server. Only hashes of secrets are kept.
struct ApiKey {
  std::string id, name;
  std::string scope;  // generate, manage or admin
  int64_t created = 0, used = 0;
};

// A page that has signed in.
struct PageSession {
  std::string key;  // the id of the key it signed in with; empty: one from the configuration
  std::string scope;
  int64_t created = 0, seen = 0;
};

// API keys and sessions of the page, in flux2.db. Thread-safe.
class KeyStore {
 public:
  explicit KeyStore(const std::filesystem::path& database);

  struct Added {
    ApiKey key;
    std::string secret;  // shown once
  };
  Added add(const std::string& name, const std::string& scope);
  std::vector<ApiKey> list() const;    // oldest first
  bool revoke(const std::string& id);  // ends its sessions as well
  bool empty() const;                  // there is no key
  std::optional<ApiKey> find(std::string_view secret, int64_t now);

  // Returns the value of the cookie. A session ends after 30 days.
  std::string begin_session(const std::string& key, const std::string& scope, int64_t now);
  std::optional<PageSession> session(std::string_view cookie, int64_t now);
  bool end_session(std::string_view cookie);
  void prune(int64_t now);  // sessions that have ended

 private:
  mutable std::mutex mutex_;
  Database database_;
};

constexpr int64_t kSessionMs = int64_t{30} * 86'400'000;

}  // namespace flux2
