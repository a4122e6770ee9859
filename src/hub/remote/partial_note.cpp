#include "hub/remote/partial_note.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/text.h"

namespace flux2 {

struct PartialNote::Header {
  char magic[16];
  char key[64];   // its SHA-256, so that any key fits
  char boot[64];  // which start of the machine it was written under
  uint64_t size, segment, segments, reserved;
};

struct PartialNote::Mark {
  uint64_t written, durable;
};

namespace {

constexpr char kMagic[16] = "flux2 parts 1\n\n";
constexpr size_t kMostSegments = 1 << 20;

template <size_t N>
void put(char (&field)[N], std::string_view text) {
  std::memset(field, 0, N);
  std::memcpy(field, text.data(), std::min(N, text.size()));
}

std::string this_boot() {
  try {
    return std::string(trimmed(read_text_file("/proc/sys/kernel/random/boot_id")));
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

PartialNote::PartialNote(std::filesystem::path path, PartialIdentity identity)
    : path_(std::move(path)), identity_(std::move(identity)) {
  if (identity_.segments() > kMostSegments)
    fail(ErrorCode::InvalidArgument, "a file of {} bytes cannot be downloaded", identity_.size);
  bytes_ = sizeof(Header) + identity_.segments() * sizeof(Mark);
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) fail(ErrorCode::CannotWrite, "cannot write {}: {}", path_.string(), std::strerror(errno));
  if (!adopt(bytes_)) start(bytes_);
  mapping_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (mapping_ == MAP_FAILED) {
    ::close(fd_);
    fail(ErrorCode::CannotWrite, "cannot write {}: {}", path_.string(), std::strerror(errno));
  }
}

PartialNote::~PartialNote() {
  ::munmap(mapping_, bytes_);
  ::close(fd_);
}

// Whether the file holds a note about the same thing; one from before a restart is set back to what was durable.
bool PartialNote::adopt(size_t bytes) {
  struct stat status {};
  if (::fstat(fd_, &status) != 0 || static_cast<size_t>(status.st_size) != bytes) return false;
  std::vector<char> content(bytes);
  if (::pread(fd_, content.data(), bytes, 0) != static_cast<ssize_t>(bytes)) return false;
  Header header{}, wanted{};
  std::memcpy(&header, content.data(), sizeof header);
  put(wanted.key, sha256(std::as_bytes(std::span(identity_.key))));
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || std::memcmp(header.key, wanted.key, sizeof header.key) != 0)
    return false;
  if (header.size != identity_.size || header.segment != identity_.segment || header.segments != identity_.segments())
    return false;
  std::vector<Mark> marks(identity_.segments());
  std::memcpy(marks.data(), content.data() + sizeof header, marks.size() * sizeof(Mark));
  for (size_t i = 0; i < marks.size(); ++i)
    if (marks[i].written > length(i) || marks[i].durable > marks[i].written) return false;
  put(wanted.boot, this_boot());
  if (std::memcmp(header.boot, wanted.boot, sizeof header.boot) == 0) return true;
  for (Mark& m : marks) m.written = m.durable;
  std::memcpy(header.boot, wanted.boot, sizeof header.boot);
  return ::pwrite(fd_, marks.data(), marks.size() * sizeof(Mark), sizeof header) ==
             static_cast<ssize_t>(marks.size() * sizeof(Mark)) &&
         ::pwrite(fd_, &header, sizeof header, 0) == static_cast<ssize_t>(sizeof header);
}

void PartialNote::start(size_t bytes) {
  Header header{};
  put(header.magic, {kMagic, sizeof kMagic});
  put(header.key, sha256(std::as_bytes(std::span(identity_.key))));
  put(header.boot, this_boot());
  header.size = identity_.size;
  header.segment = identity_.segment;
  header.segments = identity_.segments();
  std::vector<char> content(bytes);  // written out, so that the mapping never needs a block that a full disk lacks
  std::memcpy(content.data(), &header, sizeof header);
  if (::ftruncate(fd_, 0) != 0 || ::pwrite(fd_, content.data(), bytes, 0) != static_cast<ssize_t>(bytes))
    fail(ErrorCode::CannotWrite, "cannot write {}: {}", path_.string(), std::strerror(errno));
}

PartialNote::Mark* PartialNote::marks() const { return reinterpret_cast<Mark*>(static_cast<char*>(mapping_) + sizeof(Header)); }

uint64_t PartialNote::length(size_t segment) const {
  return identity_.size == 0 ? identity_.segment : std::min(identity_.segment, identity_.size - begin(segment));
}

uint64_t PartialNote::written(size_t segment) const {
  return std::atomic_ref(marks()[segment].written).load(std::memory_order_acquire);
}

void PartialNote::set_written(size_t segment, uint64_t bytes) {
  std::atomic_ref(marks()[segment].written).store(bytes, std::memory_order_release);
}

void PartialNote::set_durable(size_t segment, uint64_t bytes) {
  std::atomic_ref(marks()[segment].durable).store(bytes, std::memory_order_release);
}

void PartialNote::persist() const { ::msync(mapping_, bytes_, MS_SYNC); }

void PartialNote::remove() { ::unlink(path_.c_str()); }

}  // namespace flux2
