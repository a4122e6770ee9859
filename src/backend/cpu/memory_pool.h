#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

namespace flux2 {

// Host memory aligned to 64 bytes. Freed blocks are kept for requests of about their size, because fresh pages from the system
// cost more than the arithmetic done on them. The total never exceeds by much the largest amount that was in use at once.
class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  MemoryPool() = default;
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;
  ~MemoryPool();

  // Throws OutOfMemory when the system refuses. Blocks may outlive everything but this pool, which they share.
  std::shared_ptr<void> allocate(size_t bytes);

  size_t used_bytes() const;    // in blocks handed out
  size_t peak_bytes() const;    // the largest used_bytes so far
  size_t restart_peak();        // the largest used_bytes since the previous call
  size_t cached_bytes() const;  // in blocks kept for reuse

 private:
  void give_back(void* block, size_t size);
  void release_cached(size_t down_to);  // largest blocks first

  mutable std::mutex mutex_;
  std::multimap<size_t, void*> free_;  // by size
  size_t used_ = 0, peak_ = 0, recent_peak_ = 0, cached_ = 0;
};

}  // namespace flux2
