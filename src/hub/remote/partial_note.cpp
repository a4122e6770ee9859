#include "hub/remote/partial_note.h"

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
#include "base/own_file.h"
#include "base/sha256.h"
#include "base/text.h"

namespace flux2 {

struct PartialNote::Header {
  char magic[16];
  char key[64];   // its SHA-256, so that any key fits
  char boot[64];  // which start of the machine it was written under
  uint64_t size, segment, segments, reserved;
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
  const size_t bytes = sizeof(Header) + identity_.segments() * sizeof(Mark);
  fd_ = open_own_file(path_);
  try {
    if (!adopt(bytes)) start(bytes);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

PartialNote::~PartialNote() { ::close(fd_); }

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
  marks_ = std::move(marks);
  if (std::memcmp(header.boot, wanted.boot, sizeof header.boot) == 0) return true;
  for (Mark& m : marks_) m.written = m.durable;
  std::memcpy(header.boot, wanted.boot, sizeof header.boot);
  return ::pwrite(fd_, marks_.data(), marks_.size() * sizeof(Mark), sizeof header) ==
             static_cast<ssize_t>(marks_.size() * sizeof(Mark)) &&
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
  marks_.assign(identity_.segments(), {});
  std::vector<char> content(bytes);  // written out, so that no number needs a block later that a full disk lacks
  std::memcpy(content.data(), &header, sizeof header);
  if (::ftruncate(fd_, 0) != 0 || ::pwrite(fd_, content.data(), bytes, 0) != static_cast<ssize_t>(bytes))
    fail(ErrorCode::CannotWrite, "cannot write {}: {}", path_.string(), std::strerror(errno));
}

// Not a mapped file: another process may truncate it.
void PartialNote::store(size_t segment, size_t field, uint64_t value) {
  const auto at = static_cast<off_t>(sizeof(Header) + segment * sizeof(Mark) + field * sizeof(uint64_t));
  ssize_t n;
  do n = ::pwrite(fd_, &value, sizeof value, at);
  while (n < 0 && errno == EINTR);
  if (n != static_cast<ssize_t>(sizeof value))
    fail(ErrorCode::CannotWrite, "cannot write {}: {}", path_.string(), n < 0 ? std::strerror(errno) : "the disk is full");
}

uint64_t PartialNote::length(size_t segment) const {
  return identity_.size == 0 ? identity_.segment : std::min(identity_.segment, identity_.size - begin(segment));
}

uint64_t PartialNote::written(size_t segment) const {
  return std::atomic_ref(marks_[segment].written).load(std::memory_order_acquire);
}

void PartialNote::set_written(size_t segment, uint64_t bytes) {
  store(segment, 0, bytes);
  std::atomic_ref(marks_[segment].written).store(bytes, std::memory_order_release);
}

void PartialNote::set_durable(size_t segment, uint64_t bytes) {
  store(segment, 1, bytes);
  std::atomic_ref(marks_[segment].durable).store(bytes, std::memory_order_release);
}

void PartialNote::persist() const { ::fdatasync(fd_); }

void PartialNote::remove() { ::unlink(path_.c_str()); }

}  // namespace flux2
