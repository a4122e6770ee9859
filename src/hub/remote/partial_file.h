#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "hub/remote/partial_note.h"

namespace flux2 {

struct ByteRange {
  uint64_t begin = 0, end = 0;  // the end is not part of it

  uint64_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
};

// A file that is downloaded in several segments at a time, each front to back. The progress is recorded next to it (NAME.note)
// and survives any interruption. Each segment has one writer; any thread may read.
class PartialFile {
 public:
  static constexpr uint64_t kUnknown = 0;  // unknown size: one segment without an end

  // `key` identifies the content (an ETag): a partial file with other content is started over. It is an error if another process
  // is writing it.
  PartialFile(std::filesystem::path path, std::string key, uint64_t size, uint64_t segment);
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  ~PartialFile();  // stays for the next attempt

  const std::filesystem::path& path() const { return path_; }
  uint64_t size() const { return note_->identity().size; }
  size_t segments() const { return note_->identity().segments(); }
  ByteRange missing(size_t segment) const;
  uint64_t have() const;  // bytes in place

  void append(size_t segment, std::span<const std::byte> bytes);
  void start_again(bool whole);      // from the first byte; whole: in one segment. No other thread may write meanwhile
  void adopt_front(uint64_t bytes);  // treats the first bytes of the file as received
  void make_durable();

  // How many bytes are present from the beginning without a gap, and in which attempt: start_again() begins a new one.
  struct Front {
    uint64_t bytes;
    int attempt;
  };
  Front front() const;
  size_t read(uint64_t offset, std::span<std::byte> into) const;

  // Cuts off what lies behind the complete content: the end of other, longer content that was begun under this name.
  void end_at(uint64_t size);

  // Gives the file its final name. A file that took long to download is flushed to disk first. One that took seconds is not,
  // because waiting for the disk could take longer than downloading it again.
  void commit(const std::filesystem::path& name);
  void discard();

 private:
  void open_locked();
  std::filesystem::path note_path() const;
  void open_note(PartialIdentity identity);

  std::filesystem::path path_;
  int fd_ = -1;
  std::chrono::steady_clock::time_point opened_ = std::chrono::steady_clock::now();
  // The file system writes in turn and lets the others spin meanwhile, which cost 4 % of the processor time.
  std::mutex one_at_a_time_;
  mutable std::mutex mutex_;  // of the two below
  std::unique_ptr<PartialNote> note_;
  int attempt_ = 0;
};

// A process that was killed just after commit() leaves the note. Deletes it if the partial file is gone.
void remove_leftover_note_of(const std::filesystem::path& partial);

}  // namespace flux2
