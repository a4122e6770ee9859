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
// final name, and refuses to if another process put a different file in its place meanwhile. A link is never written through.
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
  void open_locked();
  void require_named() const;
  uint64_t noted_size() const;

  std::filesystem::path path_, partial_, note_;
  std::string fingerprint_;
  int fd_ = -1;
  uint64_t size_ = 0, resumed_ = 0;
};

// The bytes of the disk that an unfinished attempt at the file has. The next attempt uses them again.
uint64_t partial_bytes(const std::filesystem::path& path);

// A process that was killed just after it gave the file its final name leaves the note. Deletes it if the file is not in
// progress. For those who find the file complete and do not write it again.
void remove_leftover_note(const std::filesystem::path& path);

}  // namespace flux2
