#include "base/read_ahead.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>

#include "base/start_thread.h"

namespace flux2 {

namespace {

constexpr off_t kPiece = off_t{1} << 20;

// Whether a byte is in the page cache, so that reading it does not wait for the disk. File systems in memory do not support the
// question and need no read-ahead.
bool is_cached(int fd, off_t at) {
  char byte;
  iovec one{&byte, 1};
  return ::preadv2(fd, &one, 1, at, RWF_NOWAIT) == 1 || errno == EOPNOTSUPP;
}

}  // namespace

ReadAhead::ReadAhead(std::vector<std::filesystem::path> files) : files_(std::move(files)) {
  // Only for speed: without memory or a thread for it, the files are read when they are accessed.
  const std::shared_ptr<char[]> bytes(new (std::nothrow) char[static_cast<size_t>(kPiece)]);
  if (!bytes) return;
  thread_ = start_thread_if_possible([this, bytes] {
    for (const auto& path : files_) {
      const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
      if (fd < 0) continue;  // mapping it later reports the error
      const off_t size = ::lseek(fd, 0, SEEK_END);
      for (off_t at = 0; at < size && !stop_; at += kPiece) {
        const off_t last = std::min(at + kPiece, size) - 1;
        if (is_cached(fd, at) && is_cached(fd, last)) continue;
        const ssize_t n = ::pread(fd, bytes.get(), static_cast<size_t>(kPiece), at);
        if (n <= 0) break;
        read_ += n;
      }
      ::close(fd);
    }
  });
}

ReadAhead::~ReadAhead() {
  stop_ = true;
  finish();
}

int64_t ReadAhead::finish() {
  if (thread_.joinable()) thread_.join();
  return read_;
}

}  // namespace flux2
