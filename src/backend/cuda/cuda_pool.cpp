#include "backend/cuda/cuda_pool.h"

#include <algorithm>
#include <bit>

#include "backend/cuda/cuda_error.h"
#include "base/error.h"

namespace flux2 {

namespace {

// Eight sizes per octave up to a megabyte, whole megabytes above: few enough that blocks meet requests of nearly their size.
size_t size_class(size_t bytes) {
  constexpr size_t kSmallest = 512, kLarge = size_t{1} << 20;
  bytes = std::max(bytes, kSmallest);
  const size_t step = bytes >= kLarge ? kLarge : std::max(kSmallest, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

}  // namespace

CudaPool::~CudaPool() {
  cudaSetDevice(device_);
  for (const auto& block : blocks_) {
    cudaFree(block->memory);
    budget_->give_back(block->bytes);
  }
}

std::shared_ptr<void> CudaPool::allocate(size_t bytes) {
  const size_t wanted = size_class(bytes);
  const std::lock_guard lock(mutex_);
  Block* block = capturing_ ? take(captured_free_, wanted) : nullptr;
  const bool counted = block != nullptr;  // as the graph's
  if (!block) block = take(free_, wanted);
  if (!block) block = grow(wanted);
  block->graph = capturing_;
  block->in_use = true;
  if (!counted) used_ += block->bytes;
  peak_ = std::max(peak_, used_);
  return {block->memory, [pool = shared_from_this(), block](void*) { pool->release(block); }};
}

// The smallest free block that is large enough, unless it would waste more than a quarter.
CudaPool::Block* CudaPool::take(FreeList& list, size_t bytes) {
  const auto found = list.lower_bound(bytes);
  if (found == list.end() || found->first > bytes + bytes / 4) return nullptr;
  Block* block = found->second;
  list.erase(found);
  return block;
}

CudaPool::Block* CudaPool::grow(size_t bytes) {
  check_cuda(cudaSetDevice(device_), "allocating memory");
  auto block = std::make_unique<Block>(Block{nullptr, bytes, 0, false});
  const auto try_once = [&] { return budget_->allows(bytes) ? cudaMalloc(&block->memory, bytes) : cudaErrorMemoryAllocation; };
  cudaError_t status = try_once();
  if (status == cudaErrorMemoryAllocation && !capturing_) {
    cudaGetLastError();
    trim();
    status = try_once();
  }
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    const std::string limit = budget_->limit() ? fmt::format(" of {} MB allowed", budget_->limit() >> 20) : "";
    throw Error(ErrorCode::OutOfMemory,
                fmt::format("the GPU has no room for {} MB more; {} MB{} are taken", bytes >> 20, budget_->held() >> 20, limit),
                "use a smaller picture, a quantised model or --offload stream");
  }
  check_cuda(status, "allocating memory");
  budget_->take(bytes);
  blocks_.push_back(std::move(block));
  return blocks_.back().get();
}

// Gives free blocks back to the driver. Their last users may still be running.
void CudaPool::trim() {
  check_cuda(cudaStreamSynchronize(stream_), "giving memory back");
  std::erase_if(blocks_, [&](const std::unique_ptr<Block>& block) {
    if (block->in_use || block->graph != 0) return false;
    cudaFree(block->memory);
    budget_->give_back(block->bytes);
    return true;
  });
  free_.clear();
}

void CudaPool::release(Block* block) {
  const std::lock_guard lock(mutex_);
  block->in_use = false;
  if (capturing_ && block->graph == capturing_) {
    captured_free_.emplace(block->bytes, block);
  } else if (block->graph == 0) {
    // Let go of while capturing: the graph may read it at every replay, so it must not be written by anyone else.
    if (capturing_) {
      block->graph = capturing_;
    } else {
      free_.emplace(block->bytes, block);
      used_ -= block->bytes;
    }
  }
}

CudaPool::GraphId CudaPool::begin_capture() {
  const std::lock_guard lock(mutex_);
  if (capturing_) fail(ErrorCode::Internal, "a stream cannot capture two graphs at once");
  return capturing_ = ++last_graph_;
}

void CudaPool::end_capture() {
  const std::lock_guard lock(mutex_);
  capturing_ = 0;
  captured_free_.clear();
}

void CudaPool::release_graph(GraphId graph) {
  const std::lock_guard lock(mutex_);
  for (const auto& block : blocks_) {
    if (block->graph != graph) continue;
    block->graph = 0;
    if (block->in_use) continue;
    free_.emplace(block->bytes, block.get());
    used_ -= block->bytes;
  }
}

size_t CudaPool::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

size_t CudaPool::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

}  // namespace flux2
