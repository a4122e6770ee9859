#include "base/temporary_files.h"

#include <unistd.h>

#include <memory>
#include <mutex>
#include <string>

namespace flux2 {

namespace fs = std::filesystem;

// A signal handler can reach nothing but globals, and cannot take a mutex. Entries are therefore never freed; unused ones are
// used again. A path is freed only if no handler has begun: the remover clears the pointer and then looks at g_ending, the
// handler sets g_ending and then looks at the pointer, so one of them sees the other.
struct NotedTemporary::Entry {
  std::atomic<const std::string*> path = nullptr;
  bool used = false;  // guarded by g_entries_mutex
  Entry* next = nullptr;
};

namespace {

std::atomic<bool> g_ending = false;
std::mutex g_entries_mutex;

}  // namespace

std::atomic<NotedTemporary::Entry*> NotedTemporary::entries_ = nullptr;  // only added to, at the front

NotedTemporary::NotedTemporary(const fs::path& path) { note(path); }

void NotedTemporary::note(const fs::path& path) {
  forget();
  auto name = std::make_unique<const std::string>(fs::absolute(path).string());
  const std::lock_guard lock(g_entries_mutex);
  for (entry_ = entries_; entry_ && entry_->used;) entry_ = entry_->next;
  if (!entry_) {
    entry_ = new Entry{.next = entries_};
    entries_ = entry_;
  }
  entry_->used = true;
  entry_->path = name.release();
}

void NotedTemporary::forget() {
  if (!entry_) return;
  const std::string* path = entry_->path.exchange(nullptr);
  if (!g_ending) delete path;
  const std::lock_guard lock(g_entries_mutex);
  entry_->used = false;
  entry_ = nullptr;
}

void delete_noted_temporaries() noexcept {
  g_ending = true;
  for (auto* e = NotedTemporary::entries_.load(); e; e = e->next)
    if (const std::string* path = e->path) ::unlink(path->c_str());
}

}  // namespace flux2
