#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace flux2 {

// A large file that is written front to back and survives interruptions. It grows as .NAME.partial next to its target. mark()
// flushes what is written so far and records the size. If it is opened again with the same fingerprint (of everything that
// determines its bytes), it continues from the last mark; with a different fingerprint it starts over. commit() gives it its
// final name.
class ResumableFile {
 public:
  ResumableFile(std::filesystem::path path, std::string fingerprint);
  ResumableFile(const ResumableFile&) = delete;
  ResumableFile& operator=(const ResumableFile&) = delete;
  ~ResumableFile();  // keeps the partial file for the next attempt

  uint64_t size() const { return size_; }             // bytes written so far, including those of an earlier attempt
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
