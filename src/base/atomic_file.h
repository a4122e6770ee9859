#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace flux2 {

// A file that gets its name only when it is complete. It is written next to its target under a temporary name (.NAME.XXXXXX.tmp);
// commit() flushes it to disk and renames it. Without commit() the destructor deletes it. A killed process leaves the temporary
// file behind (see remove_stale_temporaries). Missing folders are created.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(const void* data, size_t size);
  void write(std::span<const std::byte> bytes) { write(bytes.data(), bytes.size()); }
  uint64_t size() const { return size_; }
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

// Deletes temporary files of `path` that killed processes left behind. Files of running processes are locked and stay.
void remove_stale_temporaries(const std::filesystem::path& path);

}  // namespace flux2
