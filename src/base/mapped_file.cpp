#include "base/mapped_file.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/own_file.h"

namespace flux2 {

// What the signal handler knows of a mapping. A handler can reach nothing but globals and cannot take a mutex, so guards form a
// list that only grows; the guard of a file that was closed is used again. While a thread reads a mapping its guard does not
// change.
struct MappedFile::Guard {
  std::atomic<uintptr_t> begin = 0;  // 0: unused
  std::atomic<size_t> size = 0;
  std::atomic<bool> damaged = false;
  Guard* next = nullptr;
};

namespace {

struct Mappings {
  std::mutex mutex;
  std::set<const MappedFile*> open;
  std::vector<std::string> lost;  // closed and damaged, not yet reported
};

Mappings& mappings() {
  static auto* all = new Mappings;  // never destroyed: files may be closed by destructors of other globals
  return *all;
}

size_t g_page = 4096;
struct sigaction g_before = {};  // the handler that was there before ours

[[noreturn]] void fail_changed(const std::string& path) {
  throw Error(ErrorCode::BadFile,
              fmt::format("{} changed while it was in use: it is shorter than before, or cannot be read", path),
              "do not replace a model while it is in use; check the file, then run the command again");
}

}  // namespace

std::atomic<MappedFile::Guard*> MappedFile::guards_ = nullptr;  // only added to, at the front

// A page that the file no longer has stands at the fault, and none after it exists either.
void MappedFile::on_lost_page(int signal, void* info, void* context) noexcept {
  const auto address = reinterpret_cast<uintptr_t>(static_cast<siginfo_t*>(info)->si_addr);
  const int reason = errno;
  for (auto* g = guards_.load(); g; g = g->next) {
    const uintptr_t begin = g->begin;
    const size_t size = g->size;
    if (begin == 0 || address < begin || address - begin >= size || g->begin != begin) continue;
    const uintptr_t page = address / g_page * g_page;
    void* zeros = ::mmap(reinterpret_cast<void*>(page), begin + size - page, PROT_READ,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    if (zeros == MAP_FAILED) break;
    g->damaged = true;
    errno = reason;
    return;  // the read is repeated
  }
  errno = reason;
  if ((g_before.sa_flags & SA_SIGINFO) != 0 && g_before.sa_sigaction)
    return g_before.sa_sigaction(signal, static_cast<siginfo_t*>(info), context);
  if (g_before.sa_handler != SIG_DFL && g_before.sa_handler != SIG_IGN) return g_before.sa_handler(signal);
  ::signal(signal, SIG_DFL);  // the read is repeated and ends the program
}

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& path) {
  static std::once_flag installed;
  std::call_once(installed, [] {
    g_page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    struct sigaction ours = {};
    ours.sa_sigaction = [](int signal, siginfo_t* info, void* context) { on_lost_page(signal, info, context); };
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    ::sigaction(SIGBUS, &ours, &g_before);
  });

  std::shared_ptr<MappedFile> mapped(new MappedFile);
  mapped->path_ = path;
  mapped->fd_ = open_regular_file(path);
  struct stat info {};
  if (::fstat(mapped->fd_, &info) != 0) fail(ErrorCode::BadFile, "cannot stat {}: {}", path.string(), std::strerror(errno));
  mapped->size_ = static_cast<size_t>(info.st_size);
  if (mapped->size_ == 0) return mapped;
  void* data = ::mmap(nullptr, mapped->size_, PROT_READ, MAP_SHARED, mapped->fd_, 0);
  if (data == MAP_FAILED) fail(ErrorCode::OutOfMemory, "cannot map {}: {}", path.string(), std::strerror(errno));
  mapped->data_ = static_cast<const std::byte*>(data);

  Mappings& all = mappings();
  const std::lock_guard lock(all.mutex);
  Guard* guard = guards_.load();
  while (guard && guard->begin != 0) guard = guard->next;
  if (!guard) {
    guard = new Guard{.next = guards_};
    guards_ = guard;
  }
  guard->damaged = false;
  guard->size = mapped->size_;
  guard->begin = reinterpret_cast<uintptr_t>(data);
  mapped->guard_ = guard;
  all.open.insert(mapped.get());
  return mapped;
}

MappedFile::~MappedFile() {
  if (guard_) {
    Mappings& all = mappings();
    const std::lock_guard lock(all.mutex);
    all.open.erase(this);
    if (guard_->damaged) {
      try {
        all.lost.push_back(path_.string());
      } catch (const std::bad_alloc&) {
        // Not reported.
      }
    }
    guard_->begin = 0;
  }
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
  if (fd_ >= 0) ::close(fd_);
}

bool MappedFile::is_damaged() const {
  struct stat info {};
  return guard_->damaged || (::fstat(fd_, &info) == 0 && static_cast<size_t>(info.st_size) < size_);
}

void check_mapped_files() {
  Mappings& all = mappings();
  const std::lock_guard lock(all.mutex);
  for (const MappedFile* file : all.open)
    if (file->is_damaged()) fail_changed(file->path().string());
  if (all.lost.empty()) return;
  const std::string path = all.lost.front();
  all.lost.clear();
  fail_changed(path);
}

void check_mapped_bytes(std::span<const std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); i += g_page) static_cast<void>(*const_cast<const volatile std::byte*>(&bytes[i]));
  if (!bytes.empty()) static_cast<void>(*const_cast<const volatile std::byte*>(&bytes.back()));
  check_mapped_files();
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
