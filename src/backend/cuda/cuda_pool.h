#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/cuda/cuda_budget.h"

namespace flux2 {

// Device memory of one stream, kept in blocks that are reused instead of freed. Reuse needs no waiting: whoever gets a
// block enqueues behind whoever gave it back. While a graph is captured, the blocks it touches become its own, because
// every replay will use the same addresses; they come back when the graph goes.
class CudaPool : public std::enable_shared_from_this<CudaPool> {
 public:
  CudaPool(int device, cudaStream_t stream, std::shared_ptr<CudaBudget> budget)
      : device_(device), stream_(stream), budget_(std::move(budget)) {}
  CudaPool(const CudaPool&) = delete;
  CudaPool& operator=(const CudaPool&) = delete;
  ~CudaPool();

  // At least 512-byte aligned; never null, even for no bytes.
  std::shared_ptr<void> allocate(size_t bytes);

  using GraphId = uint64_t;
  GraphId begin_capture();
  void end_capture();
  void release_graph(GraphId graph);

  // Blocks in use, and those that a graph keeps for its replays.
  size_t peak_bytes() const;
  size_t used_bytes() const;

 private:
  struct Block {
    void* memory;
    size_t bytes;
    GraphId graph;  // which captured graph reserves it; 0 for none
    bool in_use;
  };
  using FreeList = std::multimap<size_t, Block*>;

  static Block* take(FreeList& list, size_t bytes);
  Block* grow(size_t bytes);
  void trim();
  void release(Block* block);

  const int device_;
  const cudaStream_t stream_;
  const std::shared_ptr<CudaBudget> budget_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Block>> blocks_;
  FreeList free_;           // belongs to nobody
  FreeList captured_free_;  // given back inside the running capture, to be reused only there
  GraphId capturing_ = 0, last_graph_ = 0;
  size_t used_ = 0, peak_ = 0;
};

}  // namespace flux2
