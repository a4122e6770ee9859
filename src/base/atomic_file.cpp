#include "base/atomic_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/own_file.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr size_t kRandomLetters = 6;
constexpr std::string_view kEnding = ".flux2-tmp";  // ours alone, so that a whole folder can be searched for stale ones
constexpr size_t kLongestName = 255;                // of a file, in bytes

[[noreturn]] void cannot_write_file(const fs::path& path, int reason) {
  fail(ErrorCode::CannotWrite, "cannot write {}: {}", path.string(), std::strerror(reason));
}

std::string random_letters() {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device source;
  std::string text;
  for (size_t i = 0; i < kRandomLetters; ++i) text += kLetters[source() % kLetters.size()];
  return text;
}

// Creates a temporary file and locks it, so that no other process takes it for a stale one. If another process deletes it between
// its creation and the lock, a new one is created.
int open_temporary(const fs::path& path, fs::path& name) {
  constexpr int kAttempts = 1000;
  for (int i = 0; i < kAttempts; ++i) {
    const std::string target = path.filename().string().substr(0, kLongestName - kRandomLetters - kEnding.size() - 2);
    name = path.parent_path() / fmt::format(".{}.{}{}", target, random_letters(), kEnding);
    const int fd = ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0 && errno == EEXIST) continue;
    if (fd < 0) return fd;
    const bool taken = ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;  // other failures: no locks here
    if (!taken && is_named(name, fd)) return fd;
    ::close(fd);
  }
  errno = EEXIST;
  return -1;
}

// A rename would replace a device by a file; as root that would break /dev/null for everybody. Returns -1 if the target is a file
// or does not exist.
int open_device(const fs::path& path) {
  struct stat target {};
  if (::stat(path.c_str(), &target) != 0 || S_ISREG(target.st_mode)) return -1;
  if (!S_ISCHR(target.st_mode) && !S_ISFIFO(target.st_mode))
    fail(ErrorCode::CannotWrite, "cannot write {}: it is {}", path.string(), S_ISDIR(target.st_mode) ? "a folder" : "not a file");
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) cannot_write_file(path, errno);
  return fd;
}

bool is_temporary_name(std::string_view name) {
  return name.size() > 2 + kRandomLetters + kEnding.size() && name.starts_with('.') && name.ends_with(kEnding);
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  fd_ = open_device(path_);
  if (fd_ >= 0) return;
  std::error_code failure;
  const auto folder = path_.parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, failure);
  if (failure) fail(ErrorCode::CannotWrite, "cannot create folder {}: {}", folder.string(), failure.message());
  remove_stale_temporaries(folder);
  fs::path name;
  fd_ = open_temporary(path_, name);
  if (fd_ < 0) cannot_write_file(path_, errno);
  try {
    temporary_ = std::move(name);
    noted_.note(temporary_);
  } catch (...) {
    ::close(fd_);
    ::unlink(temporary_.c_str());
    throw;
  }
  // What a person made private stays private.
  struct stat replaced {};
  if (::lstat(path_.c_str(), &replaced) == 0 && S_ISREG(replaced.st_mode) && replaced.st_uid == ::geteuid())
    ::fchmod(fd_, replaced.st_mode & 0777);
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  if (fd_ >= 0) ::close(fd_);
}

void AtomicFile::write(const void* data, size_t size) {
  const char* p = static_cast<const char*>(data);
  for (size_t left = size; left > 0;) {
    const ssize_t n = ::write(fd_, p, left);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int reason = errno;
      if (reason == EFAULT) check_mapped_bytes({reinterpret_cast<const std::byte*>(p), left});
      cannot_write_file(path_, reason);
    }
    p += n;
    left -= static_cast<size_t>(n);
  }
  size_ += size;
}

void AtomicFile::finish() {
  check_mapped_files();
  if (temporary_.empty()) return;
  if (::fsync(fd_) != 0) fail(ErrorCode::CannotWrite, "cannot flush {}: {}", path_.string(), std::strerror(errno));
  if (!is_named(temporary_, fd_))
    fail(ErrorCode::CannotWrite, "cannot write {}: another process replaced its temporary file {}", path_.string(),
         temporary_.string());
}

void AtomicFile::commit() {
  finish();
  // Renamed before it is closed: the lock protects the temporary name.
  if (!temporary_.empty() && ::rename(temporary_.c_str(), path_.c_str()) != 0) cannot_write_file(path_, errno);
  noted_.forget();
  temporary_.clear();
  ::close(std::exchange(fd_, -1));
}

bool AtomicFile::commit_new() {
  finish();
  if (!temporary_.empty() && !rename_to_free_name(temporary_, path_)) return false;
  noted_.forget();
  temporary_.clear();
  ::close(std::exchange(fd_, -1));
  return true;
}

// Reads the folder by itself: the iterators of libstdc++ 12 end the program when they get no memory.
void remove_stale_temporaries(const fs::path& folder) {
  struct Closer {
    void operator()(DIR* list) const { ::closedir(list); }
  };
  const std::unique_ptr<DIR, Closer> list(::opendir(folder.empty() ? "." : folder.c_str()));
  if (!list) return;
  while (const dirent* entry = ::readdir(list.get())) {
    if (!is_temporary_name(entry->d_name)) continue;
    const fs::path path = folder / entry->d_name;
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0 && is_named(path, fd)) ::unlink(path.c_str());
    ::close(fd);
  }
}

}  // namespace flux2
