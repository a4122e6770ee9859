#pragma once

#include <atomic>
#include <filesystem>

namespace flux2 {

// A temporary file that exists, noted so that a signal handler that ends the program can delete it. Letting it go deletes
// nothing.
class NotedTemporary {
 public:
  NotedTemporary() = default;
  explicit NotedTemporary(const std::filesystem::path& path);
  NotedTemporary(const NotedTemporary&) = delete;
  NotedTemporary& operator=(const NotedTemporary&) = delete;
  ~NotedTemporary() { forget(); }

  void note(const std::filesystem::path& path);
  void forget();

 private:
  struct Entry;
  friend void delete_noted_temporaries() noexcept;

  static std::atomic<Entry*> entries_;  // a list; a signal handler reads it
  Entry* entry_ = nullptr;
};

// Deletes all temporary files that are noted. For a signal handler that ends the program afterwards: it calls nothing but
// unlink().
void delete_noted_temporaries() noexcept;

}  // namespace flux2
