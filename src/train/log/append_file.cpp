#include "train/log/append_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/own_file.h"

namespace flux2 {

namespace {

[[noreturn]] void cannot_append(const std::filesystem::path& path, int reason) {
  fail(ErrorCode::CannotWrite, "cannot write {}: {}", path.string(), std::strerror(reason));
}

}  // namespace

AppendFile::AppendFile(std::filesystem::path path, Start start) : path_(std::move(path)) {
  std::error_code failure;
  if (const auto folder = path_.parent_path(); !folder.empty()) {
    std::filesystem::create_directories(folder, failure);
    if (failure) fail(ErrorCode::CannotWrite, "cannot create folder {}: {}", folder.string(), failure.message());
  }
  fd_ = open_own_file(path_);
  struct stat status {};
  int reason = 0;
  if (start == Start::Empty && ::ftruncate(fd_, 0) != 0) reason = errno;
  if (reason == 0 && ::fstat(fd_, &status) != 0) reason = errno;
  if (reason != 0) {
    ::close(fd_);
    cannot_append(path_, reason);
  }
  size_ = status.st_size;
}

AppendFile::~AppendFile() { ::close(fd_); }

void AppendFile::append(std::string_view bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::pwrite(fd_, bytes.data() + done, bytes.size() - done, size_ + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int reason = errno;
      // Half a record in the middle would hide all that follow from readers.
      if (::ftruncate(fd_, size_) != 0) cannot_append(path_, errno);
      cannot_append(path_, reason);
    }
    done += static_cast<size_t>(n);
  }
  size_ += static_cast<int64_t>(bytes.size());
}

}  // namespace flux2
