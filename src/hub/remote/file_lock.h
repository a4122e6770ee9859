#pragma once

#include <filesystem>
#include <functional>

#include "base/log.h"

namespace flux2 {

// An exclusive lock between processes, of the kind Python's hub library takes on the same file. Waits for another
// holder, saying so once; on a file system that knows no locks it warns and goes on without.
class FileLock {
 public:
  FileLock(const std::filesystem::path& path, const std::function<bool()>& cancelled, const Log& log);
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();

 private:
  int fd_ = -1;
};

}  // namespace flux2
