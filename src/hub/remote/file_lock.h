#pragma once

#include <filesystem>
#include <functional>

#include "base/log.h"

namespace flux2 {

// An exclusive lock between processes, of the kind Python's huggingface_hub takes on the same file. Waits for another holder,
// with one message. On a file system without locks it warns and continues without one.
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
