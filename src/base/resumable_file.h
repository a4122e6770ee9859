#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace flux2 {

// A large file written front to back that survives being interrupted. It grows beside its name as .NAME.partial; mark()
// makes what is written so far durable and notes how much that is. Opened again with the same fingerprint, of whatever
// decides its bytes, it goes on from the last mark; with another one it starts afresh. commit() gives it its name.
class ResumableFile {
 public:
  ResumableFile(std::filesystem::path path, std::string fingerprint);
  ResumableFile(const ResumableFile&) = delete;
  ResumableFile& operator=(const ResumableFile&) = delete;
  ~ResumableFile();  // keeps the partial file for the next attempt

  uint64_t size() const { return size_; }             // bytes in place, those of an earlier attempt included
  uint64_t resumed_from() const { return resumed_; }  // 0: from the beginning
  void write(std::span<const std::byte> bytes);
  void mark();
  void commit();

 private:
  uint64_t noted_size() const;

  std::filesystem::path path_, partial_, note_;
  std::string fingerprint_;
  int fd_ = -1;
  uint64_t size_ = 0, resumed_ = 0;
};

}  // namespace flux2
