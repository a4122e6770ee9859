#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/cuda/cuda_budget.h"

namespace flux2 {

// Device memory of one stream, kept in segments whose blocks are reused instead of freed: a request takes the smallest free block
// that is large enough, the rest of it stays free, and free neighbours are merged. Reuse needs no synchronisation, because the
// new user of a block enqueues its work after the old one. While a graph is captured, the blocks it touches become its own,
// because every replay uses the same addresses; they return to the pool when the graph is destroyed.
//
// Under a memory limit, large blocks are separate segments of exactly their size if possible. Otherwise a small piece would keep
// a whole large segment allocated, and the next large request would fail although much memory is free. Completely free segments
// are returned to the driver when memory is needed.
class CudaPool : public std::enable_shared_from_this<CudaPool> {
 public:
  CudaPool(int device, cudaStream_t stream, std::shared_ptr<CudaBudget> budget);
  CudaPool(const CudaPool&) = delete;
  CudaPool& operator=(const CudaPool&) = delete;
  ~CudaPool();

  // At least 512-byte aligned; never null, even for no bytes.
  std::shared_ptr<void> allocate(size_t bytes);

  using GraphId = uint64_t;
  GraphId begin_capture();
  void end_capture();
  void release_graph(GraphId graph);

  // Blocks in use, and those that a graph keeps for its replays; the peak is that of all pools under one budget.
  size_t peak_bytes() const { return budget_->peak(); }
  size_t restart_peak() { return budget_->restart_peak(); }  // the peak since the previous call
  size_t used_bytes() const;

 private:
  struct Block;
  using FreeList = std::multimap<size_t, Block*>;

  // A part of a segment, which is one piece of the driver's memory.
  struct Block {
    std::byte* memory = nullptr;
    size_t bytes = 0;
    bool small = false;       // small and large blocks share no segment: a small one would keep a large one from forming
    GraphId graph = 0;        // which captured graph reserves it; 0 for none
    bool given_back = false;  // by its user: the graph alone keeps it
    Block *before = nullptr, *after = nullptr;  // neighbours in the segment
    FreeList* list = nullptr;                   // the list it is in while it is free; null otherwise
    FreeList::iterator at{};
  };
  // By size, small blocks first.
  using FreeLists = std::array<FreeList, 2>;

  Block* take(FreeList& list, size_t bytes, size_t at_most);
  Block* find_or_grow(size_t bytes, bool small);
  Block* grow(size_t bytes, bool small);
  void split(Block* block, size_t bytes);
  void make_free(Block* block, FreeList& list);
  void absorb_next(Block* block);
  void trim();
  void release(Block* block);
  void count_used(size_t bytes);
  void count_free(size_t bytes);
  void unlist(Block* block);

  const int device_;
  const cudaStream_t stream_;
  const std::shared_ptr<CudaBudget> budget_;
  std::list<CudaBudget::Trim>::iterator trim_entry_;
  mutable std::mutex mutex_;
  std::map<Block*, std::unique_ptr<Block>> blocks_;
  FreeLists free_;           // free
  FreeLists captured_free_;  // given back inside the running capture, to be reused only there
  GraphId capturing_ = 0, last_graph_ = 0;
  size_t used_ = 0;
};

}  // namespace flux2
