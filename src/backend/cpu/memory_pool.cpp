#include "backend/cpu/memory_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "base/error.h"
#include "base/system_memory.h"

namespace flux2 {

namespace {

constexpr size_t kAlignment = 64, kPage = 4096;
constexpr size_t kSmallestRegion = size_t{1} << 20;  // many small blocks share one

size_t rounded(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

// Whole pages for all but small blocks: fewer odd gaps remain between blocks of several sizes.
size_t block_size(size_t bytes) {
  if (bytes > std::numeric_limits<size_t>::max() / 4) fail(ErrorCode::OutOfMemory, "{} bytes cannot be allocated", bytes);
  return rounded(std::max<size_t>(bytes, 1), bytes < kPage ? kAlignment : kPage);
}

}  // namespace

// Blocks keep the pool alive, so all regions are free now.
MemoryPool::~MemoryPool() {
  for (const auto& [begin, size] : regions_) give_to_system(begin, size);
}

std::shared_ptr<void> MemoryPool::allocate(size_t bytes) {
  const size_t size = block_size(bytes);
  std::unique_lock lock(mutex_);
  std::byte* block = cut(size);
  if (!block) {
    add_region(size);
    block = cut(size);
  }
  if (!block)
    throw Error(ErrorCode::OutOfMemory,
                fmt::format("no memory for {} bytes ({} MiB are in use by this stream)", bytes, used_ >> 20),
                "use a smaller image or batch, or quantised weights");
  used_ += size;
  peak_ = std::max(peak_, used_);
  recent_peak_ = std::max(recent_peak_, used_);
  lock.unlock();
  return {block, [pool = shared_from_this(), size](void* p) { pool->give_back(static_cast<std::byte*>(p), size); }};
}

// From the smallest free span that is large enough. Null: there is none.
std::byte* MemoryPool::cut(size_t size) {
  const auto fitting = free_by_size_.lower_bound({size, nullptr});
  if (fitting == free_by_size_.end()) return nullptr;
  const auto [span_size, begin] = *fitting;
  remove_free(begin, span_size);
  if (span_size > size) add_free(begin + size, span_size - size);
  return begin;
}

void MemoryPool::give_back(std::byte* block, size_t size) {
  const std::lock_guard lock(mutex_);
  used_ -= size;
  const auto next = free_.lower_bound(block);
  if (next != free_.begin()) {
    const auto [begin, before] = *std::prev(next);
    // Regions may lie side by side. They stay apart, as each returns to the system alone.
    if (begin + before == block && !regions_.contains(block)) {
      remove_free(begin, before);
      block = begin, size += before;
    }
  }
  if (next != free_.end() && next->first == block + size && !regions_.contains(next->first)) {
    const auto [begin, after] = *next;
    remove_free(begin, after);
    size += after;
  }
  add_free(block, size);
}

// A region for a block of this size. If the pool holds too much, regions without blocks leave, and the new one takes their place
// as a whole: after a while a few large regions serve blocks of all sizes. When the system refuses, nothing is added.
void MemoryPool::add_region(size_t size) {
  const size_t wanted = used_ + size, allowed = std::max(peak_, wanted) + peak_ / 8;
  size_t region = std::max(rounded(size, kPage), kSmallestRegion);
  const size_t released = release_regions(allowed > region ? allowed - region : 0);
  if (allowed > held_) region = std::max(region, rounded(std::min(released, allowed - held_), kPage));
  void* begin = take_from_system(region);
  if (!begin) {
    release_regions(0);
    region = rounded(size, kPage);
    begin = take_from_system(region);
  }
  if (!begin) return;
  held_ += region;
  regions_.emplace(static_cast<std::byte*>(begin), region);
  add_free(static_cast<std::byte*>(begin), region);
}

size_t MemoryPool::release_regions(size_t down_to) {
  size_t released = 0;
  for (auto span = free_by_size_.end(); held_ > down_to && span != free_by_size_.begin();) {
    const auto [size, begin] = *--span;
    const auto region = regions_.find(begin);
    if (region == regions_.end() || region->second != size) continue;
    give_to_system(begin, size);
    regions_.erase(region);
    free_.erase(begin);
    span = free_by_size_.erase(span);
    held_ -= size, released += size;
  }
  return released;
}

void MemoryPool::add_free(std::byte* begin, size_t size) {
  free_.emplace(begin, size);
  free_by_size_.emplace(size, begin);
}

void MemoryPool::remove_free(std::byte* begin, size_t size) {
  free_.erase(begin);
  free_by_size_.erase({size, begin});
}

size_t MemoryPool::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

size_t MemoryPool::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

size_t MemoryPool::restart_peak() {
  const std::lock_guard lock(mutex_);
  return std::exchange(recent_peak_, used_);
}

size_t MemoryPool::cached_bytes() const {
  const std::lock_guard lock(mutex_);
  return held_ - used_;
}

}  // namespace flux2
