#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/temporary_files.h"

namespace flux2 {

// A file that gets its name only when it is complete. It is written next to its target under a temporary name
// (.NAME.XXXXXX.flux2-tmp) and locked. commit() flushes it to disk and renames it. Without commit() the destructor deletes it. A
// killed process leaves the temporary file behind; the next AtomicFile in the same folder deletes it. Missing folders are
// created. The umask decides who may read the file; one that replaces another file keeps that file's permissions. A device or a
// pipe (/dev/null, /dev/stdout) is written to and stays what it is; a folder or another special file is refused.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(const void* data, size_t size);
  void write(std::span<const std::byte> bytes) { write(bytes.data(), bytes.size()); }
  uint64_t size() const { return size_; }

  void commit();      // replaces an existing file of that name
  bool commit_new();  // replaces nothing: returns false if the name is taken, however lately; a device takes it

 private:
  void finish();  // before the rename

  std::filesystem::path path_, temporary_;  // temporary_ is empty while a device is written
  NotedTemporary noted_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

// Deletes temporary files that killed processes left in a folder. Those of running processes are locked and stay.
void remove_stale_temporaries(const std::filesystem::path& folder);

}  // namespace flux2
