#include "base/resumable_file.h"

#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/own_file.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

fs::path beside(const fs::path& path, const char* ending) {
  return path.parent_path() / ("." + path.filename().string() + ending);
}

}  // namespace

ResumableFile::ResumableFile(fs::path path, std::string fingerprint)
    : path_(std::move(path)),
      partial_(beside(path_, ".partial")),
      note_(beside(path_, ".partial.json")),
      fingerprint_(std::move(fingerprint)) {
  std::error_code failure;
  if (!path_.parent_path().empty()) fs::create_directories(path_.parent_path(), failure);
  if (failure) fail(ErrorCode::CannotWrite, "cannot create folder {}: {}", path_.parent_path().string(), failure.message());
  remove_stale_temporaries(path_.parent_path());
  open_locked();
  try {
    size_ = resumed_ = noted_size();
    if (::ftruncate(fd_, static_cast<off_t>(size_)) != 0 || ::lseek(fd_, static_cast<off_t>(size_), SEEK_SET) < 0)
      fail(ErrorCode::CannotWrite, "cannot write {}: {}", partial_.string(), std::strerror(errno));
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

// Another process may give the file its final name between our opening it and our lock. Then ours is a lock on the finished file,
// and the next attempt opens a new partial file.
void ResumableFile::open_locked() {
  for (;;) {
    fd_ = open_own_file(partial_);
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      ::close(std::exchange(fd_, -1));
      throw Error(ErrorCode::CannotWrite, fmt::format("another process is writing {}", path_.string()),
                  "wait for it, or choose another name");
    }
    if (is_named(partial_, fd_)) return;
    ::close(std::exchange(fd_, -1));
  }
}

void ResumableFile::require_named() const {
  if (!is_named(partial_, fd_))
    fail(ErrorCode::CannotWrite, "cannot write {}: another process replaced {}", path_.string(), partial_.string());
}

uint64_t partial_bytes(const fs::path& path) {
  std::error_code missing;
  const uint64_t bytes = fs::file_size(beside(path, ".partial"), missing);
  return missing ? 0 : bytes;
}

void remove_leftover_note(const fs::path& path) {
  std::error_code ignored;
  if (fs::symlink_status(beside(path, ".partial"), ignored).type() == fs::file_type::not_found)
    ::unlink(beside(path, ".partial.json").c_str());
}

ResumableFile::~ResumableFile() {
  if (fd_ >= 0) ::close(fd_);
}

// The size that an earlier attempt left; 0 if there is none or if it has another fingerprint.
uint64_t ResumableFile::noted_size() const {
  try {
    const Json note = read_json(note_);
    if (note.at("fingerprint") != fingerprint_) return 0;
    const auto size = note.at("size").get<uint64_t>();
    return size <= fs::file_size(partial_) ? size : 0;
  } catch (const std::exception&) {
    return 0;
  }
}

void ResumableFile::write(std::span<const std::byte> bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::write(fd_, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int reason = errno;
      if (reason == EFAULT) check_mapped_bytes(bytes.subspan(done));
      fail(ErrorCode::CannotWrite, "cannot write {}: {}", path_.string(), std::strerror(reason));
    }
    done += static_cast<size_t>(n);
  }
  size_ += bytes.size();
}

void ResumableFile::mark() {
  check_mapped_files();
  if (::fsync(fd_) != 0) fail(ErrorCode::CannotWrite, "cannot flush {}: {}", path_.string(), std::strerror(errno));
  AtomicFile note(note_);
  const std::string text = Json{{"fingerprint", fingerprint_}, {"size", size_}}.dump();
  note.write(text.data(), text.size());
  note.commit();
}

void ResumableFile::commit() {
  check_mapped_files();
  if (::fsync(fd_) != 0) fail(ErrorCode::CannotWrite, "cannot flush {}: {}", path_.string(), std::strerror(errno));
  require_named();
  if (::rename(partial_.c_str(), path_.c_str()) != 0)
    fail(ErrorCode::CannotWrite, "cannot write {}: {}", path_.string(), std::strerror(errno));
  ::close(std::exchange(fd_, -1));
  ::unlink(note_.c_str());
}

}  // namespace flux2
