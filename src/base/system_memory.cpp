#include "base/system_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

#include "base/error.h"

namespace flux2 {

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kMapped = size_t{1} << 20;

// A number from a file of one number; the largest there is when the file is missing or says "max".
int64_t limit_in(const char* path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : std::numeric_limits<int64_t>::max();
}

size_t rounded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

void* take_from_system(size_t bytes) {
  if (bytes < kMapped) return std::aligned_alloc(kAlignment, rounded(bytes ? bytes : 1));
  void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) return nullptr;
  madvise(block, bytes, MADV_HUGEPAGE);  // failure is harmless
  return block;
}

void give_to_system(void* block, size_t bytes) {
  if (bytes < kMapped) std::free(block);
  else munmap(block, bytes);
}

std::shared_ptr<void> system_memory(size_t bytes) {
  void* block = take_from_system(bytes);
  if (!block) fail(ErrorCode::OutOfMemory, "no memory for {} bytes", bytes);
  return {block, [bytes](void* p) { give_to_system(p, bytes); }};
}

MemorySize system_memory_size() {
  MemorySize size;
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (int64_t kib = 0; file >> name >> kib; std::getline(file, unit)) {
    if (name == "MemTotal:") size.total = kib * 1024;
    if (name == "MemAvailable:") size.available = kib * 1024;
  }
  const int64_t limit = limit_in("/sys/fs/cgroup/memory.max");
  if (limit < size.total) {
    const int64_t used = limit_in("/sys/fs/cgroup/memory.current");
    size.total = limit;
    size.available = std::min(size.available, std::max<int64_t>(0, limit - std::min(used, limit)));
  }
  return size;
}

}  // namespace flux2
