#include "hub/remote/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"

namespace flux2 {

namespace {

// Whoever held the lock may have removed the file with it: then ours is a lock on nothing.
bool is_still(const std::filesystem::path& path, int fd) {
  struct stat named {
  }, held{};
  return ::stat(path.c_str(), &named) == 0 && ::fstat(fd, &held) == 0 && named.st_dev == held.st_dev &&
         named.st_ino == held.st_ino;
}

}  // namespace

FileLock::FileLock(const std::filesystem::path& path, const std::function<bool()>& cancelled, const Log& log) {
  std::error_code failure;
  std::filesystem::create_directories(path.parent_path(), failure);
  for (bool told = false;;) {
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd_ < 0) fail(ErrorCode::CannotWrite, "cannot write {}: {}", path.string(), std::strerror(errno));
    if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) {
      if (is_still(path, fd_)) return;
    } else if (errno != EWOULDBLOCK && errno != EINTR) {
      log.warn("{} cannot be locked ({}); do not download it twice at the same time", path.string(), std::strerror(errno));
      return;
    } else if (!told) {
      log.info("another process is downloading the same file; waiting for it");
      told = true;
    }
    ::close(fd_);
    fd_ = -1;
    if (cancelled && cancelled()) fail(ErrorCode::Cancelled, "the transfer was cancelled");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace flux2
