#include "backend/cpu/memory_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <limits>

#include "base/error.h"

namespace flux2 {

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kMapped = size_t{1} << 20;  // from here on blocks are mappings, which return to the system at once

// Sizes are rounded up to eight steps per power of two, so that requests which differ a little share blocks.
size_t size_class(size_t bytes) {
  if (bytes > std::numeric_limits<size_t>::max() / 4)
    fail(ErrorCode::OutOfMemory, "{} bytes cannot be allocated", bytes);
  const size_t step = std::max(kAlignment, std::bit_floor(std::max<size_t>(bytes, 1)) / 8);
  return std::max(step, (bytes + step - 1) / step * step);
}

void* from_system(size_t size) {
  if (size < kMapped) return std::aligned_alloc(kAlignment, size);
  void* block = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) return nullptr;
  madvise(block, size, MADV_HUGEPAGE);  // fewer page faults and TLB misses; a refusal does no harm
  return block;
}

void to_system(void* block, size_t size) {
  if (size < kMapped) std::free(block);
  else munmap(block, size);
}

}  // namespace

MemoryPool::~MemoryPool() { release_cached(0); }

std::shared_ptr<void> MemoryPool::allocate(size_t bytes) {
  size_t size = size_class(bytes);
  std::unique_lock lock(mutex_);
  void* block = nullptr;
  // A kept block may be up to an eighth larger than asked for.
  if (const auto fitting = free_.lower_bound(size); fitting != free_.end() && fitting->first <= size + size / 8) {
    size = fitting->first;
    block = fitting->second;
    cached_ -= size;
    free_.erase(fitting);
  } else {
    const size_t wanted = used_ + size, allowed = std::max(peak_, wanted) + peak_ / 8;
    if (wanted + cached_ > allowed) release_cached(allowed - wanted);
    block = from_system(size);
    if (!block) {
      release_cached(0);
      block = from_system(size);
    }
    if (!block)
      throw Error(ErrorCode::OutOfMemory,
                  fmt::format("no memory for {} bytes ({} MiB are in use by this stream)", bytes, used_ >> 20),
                  "use a smaller picture or batch, or quantised weights");
  }
  used_ += size;
  peak_ = std::max(peak_, used_);
  lock.unlock();
  return {block, [pool = shared_from_this(), size](void* p) { pool->give_back(p, size); }};
}

void MemoryPool::give_back(void* block, size_t size) {
  std::lock_guard lock(mutex_);
  used_ -= size;
  cached_ += size;
  free_.emplace(size, block);
}

void MemoryPool::release_cached(size_t down_to) {
  while (cached_ > down_to) {
    const auto largest = std::prev(free_.end());
    to_system(largest->second, largest->first);
    cached_ -= largest->first;
    free_.erase(largest);
  }
}

size_t MemoryPool::used_bytes() const {
  std::lock_guard lock(mutex_);
  return used_;
}

size_t MemoryPool::peak_bytes() const {
  std::lock_guard lock(mutex_);
  return peak_;
}

size_t MemoryPool::cached_bytes() const {
  std::lock_guard lock(mutex_);
  return cached_;
}

}  // namespace flux2
