#include "server/stored_sessions.h"

namespace flux2 {

const char* name_of(Scope scope) {
  switch (scope) {
    case Scope::None: return "none";
    case Scope::Generate: return "generate";
    case Scope::Manage: return "manage";
    case Scope::Admin: return "admin";
  }
  return "none";
}

Scope scope_named(const std::string& name) {
  for (const Scope scope : {Scope::Generate, Scope::Manage, Scope::Admin})
    if (name == name_of(scope)) return scope;
  return Scope::None;
}

void StoredSessions::add(const std::string& hash, const std::string& key, Scope scope, int64_t created) {
  const PageSession session{hash, key, name_of(scope), 1000 * created};
  store_.add_session(session);
  const std::lock_guard lock(mutex_);
  known_[hash] = session;
}

std::optional<Sessions::Found> StoredSessions::find(const std::string& hash, int64_t not_before) {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(hash);
  if (found == known_.end() || found->second.created < 1000 * not_before) return std::nullopt;
  return Found{scope_named(found->second.scope), found->second.key};
}

void StoredSessions::remove(const std::string& hash) {
  store_.remove_session(hash);
  const std::lock_guard lock(mutex_);
  known_.erase(hash);
}

void StoredSessions::refresh() {
  std::map<std::string, PageSession> now;
  for (PageSession& session : store_.sessions()) now.emplace(session.sha256, session);
  const std::lock_guard lock(mutex_);
  known_ = std::move(now);
}

}  // namespace flux2
