#include "hub/remote/file_lock.h"

#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/own_file.h"

namespace flux2 {

FileLock::FileLock(const std::filesystem::path& path, const std::function<bool()>& cancelled, const Log& log) {
  std::error_code failure;
  std::filesystem::create_directories(path.parent_path(), failure);
  for (bool told = false;;) {
    fd_ = open_own_file(path);
    if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) {
      if (is_named(path, fd_)) return;  // whoever held the lock may have removed the file: then ours is a lock on nothing
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
