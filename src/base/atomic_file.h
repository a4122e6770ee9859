#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace flux2 {

// A file that appears under its name only when complete: written beside it under a temporary name (.NAME.XXXXXX.tmp), flushed to
// disk, renamed by commit(). Destroyed without commit(), it leaves nothing behind; a killed process leaves the temporary file
// (remove_stale_temporaries). Missing folders are created.
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

// Deletes the temporary files of `path` that killed processes have left. Those of running ones are locked and stay.
void remove_stale_temporaries(const std::filesystem::path& path);

}  // namespace flux2
