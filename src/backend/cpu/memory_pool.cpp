#include "backend/cpu/memory_pool.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/system_memory.h"

namespace flux2 {

namespace {

constexpr size_t kAlignment = 64;

// Sizes are rounded up to eight steps per power of two, so that requests which differ a little share blocks.
size_t size_class(size_t bytes) {
  if (bytes > std::numeric_limits<size_t>::max() / 4) fail(ErrorCode::OutOfMemory, "{} bytes cannot be allocated", bytes);
  const size_t step = std::max(kAlignment, std::bit_floor(std::max<size_t>(bytes, 1)) / 8);
  return std::max(step, (bytes + step - 1) / step * step);
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
    block = take_from_system(size);
    if (!block) {
      release_cached(0);
      block = take_from_system(size);
    }
    if (!block)
      throw Error(ErrorCode::OutOfMemory,
                  fmt::format("no memory for {} bytes ({} MiB are in use by this stream)", bytes, used_ >> 20),
                  "use a smaller image or batch, or quantised weights");
  }
  used_ += size;
  peak_ = std::max(peak_, used_);
  recent_peak_ = std::max(recent_peak_, used_);
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
    give_to_system(largest->second, largest->first);
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

size_t MemoryPool::restart_peak() {
  std::lock_guard lock(mutex_);
  return std::exchange(recent_peak_, used_);
}

size_t MemoryPool::cached_bytes() const {
  std::lock_guard lock(mutex_);
  return cached_;
}

}  // namespace flux2
