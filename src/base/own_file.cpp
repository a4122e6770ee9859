#include "base/own_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"

namespace flux2 {

namespace fs = std::filesystem;

int open_own_file(const fs::path& path) {
  // O_NONBLOCK: opening a pipe must not wait. It has no effect on regular files.
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (fd < 0 && errno == ELOOP)
    throw Error(ErrorCode::CannotWrite, fmt::format("{} is a symbolic link and is not written to", path.string()),
                "delete the link");
  if (fd < 0) fail(ErrorCode::CannotWrite, "cannot write {}: {}", path.string(), std::strerror(errno));
  struct stat state {};
  const bool known = ::fstat(fd, &state) == 0;
  if (known && S_ISREG(state.st_mode) && state.st_nlink <= 1) return fd;
  ::close(fd);
  if (known && S_ISREG(state.st_mode))
    throw Error(ErrorCode::CannotWrite,
                fmt::format("{} is a link to a file with another name and is not written to", path.string()), "delete the link");
  fail(ErrorCode::CannotWrite, "cannot write {}: it is not a regular file", path.string());
}

int open_regular_file(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const int reason = errno;
    if (reason == ENXIO) fail(ErrorCode::BadFile, "{} is not a regular file", path.string());  // a socket
    fail(reason == ENOENT ? ErrorCode::NotFound : ErrorCode::BadFile, "cannot open {}: {}", path.string(), std::strerror(reason));
  }
  struct stat state {};
  if (::fstat(fd, &state) == 0 && S_ISREG(state.st_mode)) return fd;
  ::close(fd);
  fail(ErrorCode::BadFile, "{} is not a regular file", path.string());
}

bool is_named(const fs::path& path, int fd) {
  struct stat named {
  }, held{};
  return ::lstat(path.c_str(), &named) == 0 && ::fstat(fd, &held) == 0 && named.st_dev == held.st_dev &&
         named.st_ino == held.st_ino;
}

bool is_locked(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  const bool locked = ::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(fd);
  return locked;
}

bool rename_to_free_name(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  int reason = errno;
  // Some file systems cannot do that. A second name for the file is refused as well if it is taken.
  if (reason == EINVAL || reason == ENOSYS) {
    if (::link(from.c_str(), to.c_str()) == 0) {
      ::unlink(from.c_str());
      return true;
    }
    reason = errno;
    // Without links either: this leaves a moment in which another process can take the name.
    if (struct stat taken{}; (reason == EPERM || reason == EOPNOTSUPP || reason == ENOSYS) && ::lstat(to.c_str(), &taken) != 0) {
      if (::rename(from.c_str(), to.c_str()) == 0) return true;
      reason = errno;
    } else if (reason == EPERM || reason == EOPNOTSUPP || reason == ENOSYS) {
      reason = EEXIST;
    }
  }
  if (reason == EEXIST) return false;
  fail(ErrorCode::CannotWrite, "cannot write {}: {}", to.string(), std::strerror(reason));
}

}  // namespace flux2
