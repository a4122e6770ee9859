#include "hub/remote/partial_file.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/own_file.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kEndless = uint64_t{1} << 62;  // the segment of a file of unknown size
constexpr auto kSlow = std::chrono::seconds(5);

[[noreturn]] void cannot_write(const fs::path& path) {
  const int reason = errno;
  throw Error(ErrorCode::CannotWrite, fmt::format("cannot write {}: {}", path.string(), std::strerror(reason)),
              reason == ENOSPC ? "free some space; the same command then continues the download" : "");
}

}  // namespace

PartialFile::PartialFile(fs::path path, std::string key, uint64_t size, uint64_t segment) : path_(std::move(path)) {
  std::error_code failure;
  if (path_.has_parent_path()) fs::create_directories(path_.parent_path(), failure);
  open_locked();
  try {
    open_note({std::move(key), size, size == kUnknown ? kEndless : segment});
    // A file shorter than its note says is another file, or one whose note outlived it.
    struct stat status {};
    uint64_t needed = 0;
    for (size_t i = 0; i < segments(); ++i)
      if (note_->written(i) > 0) needed = note_->begin(i) + note_->written(i);
    if (::fstat(fd_, &status) != 0 || static_cast<uint64_t>(status.st_size) < needed) start_again(false);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

// Another process may give the file its final name between our opening it and our lock.
void PartialFile::open_locked() {
  for (;;) {
    fd_ = open_own_file(path_);
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      ::close(fd_);
      throw Error(ErrorCode::CannotWrite, fmt::format("another process is writing {}", path_.string()), "wait for it to end");
    }
    if (is_named(path_, fd_)) return;
    ::close(fd_);
  }
}

PartialFile::~PartialFile() { ::close(fd_); }

fs::path PartialFile::note_path() const { return path_.string() + ".note"; }

void PartialFile::open_note(PartialIdentity identity) { note_ = std::make_unique<PartialNote>(note_path(), std::move(identity)); }

ByteRange PartialFile::missing(size_t segment) const {
  const uint64_t begin = note_->begin(segment);
  return {begin + note_->written(segment), begin + note_->length(segment)};
}

uint64_t PartialFile::have() const {
  const std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (size_t i = 0; i < segments(); ++i) bytes += note_->written(i);
  return bytes;
}

void PartialFile::append(size_t segment, std::span<const std::byte> bytes) {
  const ByteRange left = missing(segment);
  if (bytes.size() > left.size()) fail(ErrorCode::Internal, "a segment of {} got more bytes than it has", path_.string());
  const std::lock_guard lock(one_at_a_time_);
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::pwrite(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(left.begin + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) cannot_write(path_);
    done += static_cast<size_t>(n);
  }
  note_->set_written(segment, left.begin + bytes.size() - note_->begin(segment));
}

void PartialFile::start_again(bool whole) {
  const std::lock_guard lock(mutex_);
  PartialIdentity identity = note_->identity();
  if (whole && identity.size != kUnknown) identity.segment = identity.size;
  note_->remove();
  if (::ftruncate(fd_, 0) != 0) cannot_write(path_);
  open_note(std::move(identity));
  ++attempt_;
}

void PartialFile::adopt_front(uint64_t bytes) {
  for (size_t i = 0; i < segments() && note_->begin(i) < bytes; ++i)
    note_->set_written(i, std::min(note_->length(i), bytes - note_->begin(i)));
}

void PartialFile::make_durable() {
  std::vector<uint64_t> before(segments());
  for (size_t i = 0; i < before.size(); ++i) before[i] = note_->written(i);
  if (::fdatasync(fd_) != 0) cannot_write(path_);
  for (size_t i = 0; i < before.size(); ++i) note_->set_durable(i, before[i]);
  note_->persist();
}

PartialFile::Front PartialFile::front() const {
  const std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (size_t i = 0; i < segments(); ++i) {
    bytes += note_->written(i);
    if (note_->written(i) < note_->length(i)) break;
  }
  return {bytes, attempt_};
}

size_t PartialFile::read(uint64_t offset, std::span<std::byte> into) const {
  const ssize_t n = ::pread(fd_, into.data(), into.size(), static_cast<off_t>(offset));
  if (n < 0) fail(ErrorCode::BadFile, "cannot read {}: {}", path_.string(), std::strerror(errno));
  return static_cast<size_t>(n);
}

void PartialFile::end_at(uint64_t size) {
  struct stat status {};
  if (::fstat(fd_, &status) != 0 || static_cast<uint64_t>(status.st_size) <= size) return;
  if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) cannot_write(path_);
}

void PartialFile::commit(const fs::path& name) {
  const bool came_slowly = std::chrono::steady_clock::now() - opened_ > kSlow;
  if (came_slowly && ::fdatasync(fd_) != 0) cannot_write(path_);
  std::error_code failure;
  if (name.has_parent_path()) fs::create_directories(name.parent_path(), failure);
  if (!is_named(path_, fd_))
    fail(ErrorCode::CannotWrite, "cannot write {}: another process replaced {}", name.string(), path_.string());
  if (::rename(path_.c_str(), name.c_str()) != 0) cannot_write(name);
  note_->remove();
}

void remove_leftover_note_of(const fs::path& partial) {
  std::error_code ignored;
  if (fs::symlink_status(partial, ignored).type() == fs::file_type::not_found) ::unlink((partial.string() + ".note").c_str());
}

void PartialFile::discard() {
  note_->remove();
  ::unlink(path_.c_str());
}

}  // namespace flux2
