#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace flux2 {

namespace {

struct FileDescriptor {
  int fd;
  ~FileDescriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& path) {
  FileDescriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) {
    const int reason = errno;
    fail(reason == ENOENT ? ErrorCode::NotFound : ErrorCode::BadFile, "cannot open {}: {}", path.string(), std::strerror(reason));
  }
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) fail(ErrorCode::BadFile, "cannot stat {}: {}", path.string(), std::strerror(errno));
  if (!S_ISREG(info.st_mode)) fail(ErrorCode::BadFile, "{} is not a regular file", path.string());

  std::shared_ptr<MappedFile> mapped(new MappedFile);
  mapped->path_ = path;
  mapped->size_ = static_cast<size_t>(info.st_size);
  if (mapped->size_ > 0) {
    void* data = ::mmap(nullptr, mapped->size_, PROT_READ, MAP_SHARED, file.fd, 0);
    if (data == MAP_FAILED) fail(ErrorCode::OutOfMemory, "cannot map {}: {}", path.string(), std::strerror(errno));
    mapped->data_ = static_cast<const std::byte*>(data);
  }
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

namespace {

void advise(const std::byte* base, size_t total, size_t offset, size_t size, int advice) {
  if (!base || offset >= total) return;
  size = std::min(size, total - offset);
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = offset / page * page;
  ::madvise(const_cast<std::byte*>(base) + begin, offset + size - begin, advice);
}

}  // namespace

void MappedFile::will_need(size_t offset, size_t size) const { advise(data_, size_, offset, size, MADV_WILLNEED); }
void MappedFile::drop(size_t offset, size_t size) const { advise(data_, size_, offset, size, MADV_DONTNEED); }

}  // namespace flux2
