#pragma once

#include <map>
#include <mutex>
#include <string>

#include "server/http/access.h"
#include "server/store/key_store.h"

namespace flux2 {

const char* name_of(Scope scope);
Scope scope_named(const std::string& name);  // of a stored key or session

// Sign-ins of the page, which survive a restart. They are asked for on I/O threads, so they are kept in memory as well.
class StoredSessions : public Sessions {
 public:
  explicit StoredSessions(KeyStore& store) : store_(store) { refresh(); }

  void add(const std::string& hash, const std::string& key, Scope scope, int64_t created) override;  // seconds
  std::optional<Found> find(const std::string& hash, int64_t not_before) override;
  void remove(const std::string& hash) override;
  void refresh();  // another process may have ended some: a key was revoked

 private:
  KeyStore& store_;
  std::mutex mutex_;
  std::map<std::string, PageSession> known_;
};

}  // namespace flux2
