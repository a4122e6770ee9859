#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRandomPart = "XXXXXX", kEnding = ".tmp";

std::string temporary_prefix(const fs::path& path) { return "." + path.filename().string() + "."; }

// Creates a temporary file and locks it, so that no other process takes it for a stale one. If another process deletes it between
// its creation and the lock, a new one is created.
int open_temporary(const std::string& pattern, std::string& name) {
  for (;;) {
    name = pattern;
    const int fd = ::mkostemps(name.data(), static_cast<int>(kEnding.size()), O_CLOEXEC);
    if (fd < 0) return fd;
    const bool taken = ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;  // other failures: no locks here
    struct stat state {};
    if (!taken && (::fstat(fd, &state) != 0 || state.st_nlink > 0)) return fd;
    ::close(fd);
  }
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code failure;
  const auto folder = path_.parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, failure);
  if (failure) fail(ErrorCode::CannotWrite, "cannot create folder {}: {}", folder.string(), failure.message());
  std::string name;
  fd_ = open_temporary((folder / fmt::format("{}{}{}", temporary_prefix(path_), kRandomPart, kEnding)).string(), name);
  if (fd_ < 0) fail(ErrorCode::CannotWrite, "cannot write {}: {}", path_.string(), std::strerror(errno));
  temporary_ = name;
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
  // Renamed before it is closed: the lock protects the temporary name.
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    fail(ErrorCode::CannotWrite, "cannot write {}: {}", path_.string(), std::strerror(errno));
  temporary_.clear();
  ::close(fd_);
  fd_ = -1;
}

void remove_stale_temporaries(const fs::path& path) {
  const fs::path folder = path.parent_path().empty() ? fs::path(".") : path.parent_path();
  const std::string prefix = temporary_prefix(path);
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure)) {
    const std::string name = entry->path().filename().string();
    if (name.size() != prefix.size() + kRandomPart.size() + kEnding.size() || !name.starts_with(prefix) ||
        !name.ends_with(kEnding))
      continue;
    const int fd = ::open(entry->path().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(entry->path().c_str());
    ::close(fd);
  }
}

}  // namespace flux2
