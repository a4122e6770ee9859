#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace flux2 {

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code failure;
  const auto folder = path_.parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, failure);
  if (failure) fail(ErrorCode::CannotWrite, "cannot create folder {}: {}", folder.string(), failure.message());
  std::string pattern = (folder / ("." + path_.filename().string() + ".XXXXXX")).string();
  fd_ = ::mkstemp(pattern.data());
  if (fd_ < 0) fail(ErrorCode::CannotWrite, "cannot write {}: {}", path_.string(), std::strerror(errno));
  temporary_ = pattern;
  ::fchmod(fd_, 0644);
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t size) {
  const char* p = static_cast<const char*>(data);
  for (size_t left = size; left > 0;) {
    const ssize_t n = ::write(fd_, p, left);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(ErrorCode::CannotWrite, "cannot write {}: {}", path_.string(), std::strerror(errno));
    p += n;
    left -= static_cast<size_t>(n);
  }
  size_ += size;
}

void AtomicFile::commit() {
  if (::fsync(fd_) != 0) fail(ErrorCode::CannotWrite, "cannot flush {}: {}", path_.string(), std::strerror(errno));
  ::close(fd_);
  fd_ = -1;
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    fail(ErrorCode::CannotWrite, "cannot write {}: {}", path_.string(), std::strerror(errno));
  temporary_.clear();
}

}  // namespace flux2
