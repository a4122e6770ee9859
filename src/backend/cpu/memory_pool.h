#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

namespace flux2 {

// Host memory aligned to 64 bytes. The pool takes regions from the system and cuts blocks out of them. Freed blocks stay in their
// region and join their free neighbours, because fresh pages from the system cost more than the arithmetic done on them. The
// total is little more than the largest amount that was in use at once, and does not change while the same work is repeated.
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
  size_t cached_bytes() const;  // kept for reuse

 private:
  using Span = std::pair<size_t, std::byte*>;  // its size first: ordered by size

  std::byte* cut(size_t size);
  void give_back(std::byte* block, size_t size);
  void add_region(size_t size);
  size_t release_regions(size_t down_to);  // those without blocks, largest first; returns the bytes released
  void add_free(std::byte* begin, size_t size);
  void remove_free(std::byte* begin, size_t size);

  mutable std::mutex mutex_;
  std::map<std::byte*, size_t> regions_;  // sizes by address
  std::map<std::byte*, size_t> free_;     // the same spans by address and by size; neighbours in a region are one span
  std::set<Span> free_by_size_;
  size_t used_ = 0, peak_ = 0, recent_peak_ = 0, held_ = 0;  // held_: in all regions
};

}  // namespace flux2
