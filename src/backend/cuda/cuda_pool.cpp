#include "backend/cuda/cuda_pool.h"

#include <algorithm>
#include <bit>

#include "backend/cuda/capture_gate.h"
#include "backend/cuda/cuda_error.h"
#include "base/error.h"

namespace flux2 {

namespace {

constexpr size_t kLarge = size_t{1} << 20;         // blocks from here on are whole megabytes
constexpr size_t kSmallSegment = size_t{2} << 20;  // asked of the driver for small blocks

// Eight sizes per octave up to a megabyte, whole megabytes above.
size_t size_class(size_t bytes) {
  constexpr size_t kSmallest = 512;
  bytes = std::max(bytes, kSmallest);
  const size_t step = bytes >= kLarge ? kLarge : std::max(kSmallest, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

}  // namespace

CudaPool::CudaPool(int device, cudaStream_t stream, std::shared_ptr<CudaBudget> budget)
    : device_(device), stream_(stream), budget_(std::move(budget)) {
  trim_entry_ = budget_->add([this] {
    // A stream that is just allocating is busy with its own memory; waiting for it here could wait for ever.
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock && !capturing_) trim();
  });
}

CudaPool::~CudaPool() {
  budget_->remove(trim_entry_);
  const OutsideCaptures here;
  cudaSetDevice(device_);
  for (const auto& [block, owner] : blocks_) {
    if (!block->before) cudaFree(block->memory);
    budget_->give_back(block->bytes);
  }
  budget_->let_go(used_);
}

void CudaPool::count_used(size_t bytes) {
  used_ += bytes;
  budget_->use(bytes);
}

void CudaPool::count_free(size_t bytes) {
  used_ -= bytes;
  budget_->let_go(bytes);
}

std::shared_ptr<void> CudaPool::allocate(size_t bytes) {
  const size_t wanted = size_class(bytes);
  const bool small = wanted < kLarge;
  const OutsideCaptures here;  // before the mutex, which a capturing thread may need
  const std::lock_guard lock(mutex_);
  Block* block = capturing_ ? take(captured_free_[small], wanted, SIZE_MAX) : nullptr;
  const bool counted = block != nullptr;  // as the graph's
  if (!block) block = find_or_grow(wanted, small);
  block->graph = capturing_;
  if (!counted) count_used(block->bytes);
  return {block->memory, [pool = shared_from_this(), block](void*) { pool->release(block); }};
}

CudaPool::Block* CudaPool::find_or_grow(size_t bytes, bool small) {
  FreeList& list = free_[small];
  const bool own_segment = budget_->limit() && !small;
  if (Block* block = take(list, bytes, own_segment ? bytes + bytes / 4 : SIZE_MAX)) return block;
  if (Block* block = grow(small ? kSmallSegment : bytes, small)) {
    make_free(block, list);
    return take(list, bytes, SIZE_MAX);
  }
  if (Block* block = take(list, bytes, SIZE_MAX)) return block;
  const std::string limit = budget_->limit() ? fmt::format(" of {} MiB allowed", budget_->limit() >> 20) : "";
  throw Error(ErrorCode::OutOfMemory,
              fmt::format("the GPU has no room for {} MiB more; {} MiB{} are in use", bytes >> 20, budget_->held() >> 20, limit),
              Hint("use a smaller image, a quantised model or {0}", {set_option("offload", "stream")}));
}

// The smallest free block that is large enough and not too large, cut to the size wanted.
CudaPool::Block* CudaPool::take(FreeList& list, size_t bytes, size_t at_most) {
  const auto found = list.lower_bound(bytes);
  if (found == list.end() || found->first > at_most) return nullptr;
  Block* block = found->second;
  unlist(block);
  if (block->bytes > bytes) {
    split(block, bytes);
    make_free(block->after, list);
  }
  return block;
}

void CudaPool::unlist(Block* block) {
  block->list->erase(block->at);
  block->list = nullptr;
}

void CudaPool::split(Block* block, size_t bytes) {
  auto rest = std::make_unique<Block>(*block);
  rest->memory += bytes;
  rest->bytes -= bytes;
  rest->before = block;
  block->bytes = bytes;
  if (block->after) block->after->before = rest.get();
  block->after = rest.get();
  blocks_.emplace(rest.get(), std::move(rest));
}

// Puts it into the list, as one with neighbours that are in the same list.
void CudaPool::make_free(Block* block, FreeList& list) {
  if (block->after && block->after->list == &list) absorb_next(block);
  if (block->before && block->before->list == &list) {
    block = block->before;
    unlist(block);
    absorb_next(block);
  }
  block->list = &list;
  block->at = list.emplace(block->bytes, block);
}

void CudaPool::absorb_next(Block* block) {
  Block* next = block->after;
  if (next->list) unlist(next);
  block->bytes += next->bytes;
  block->after = next->after;
  if (block->after) block->after->before = block;
  blocks_.erase(next);
}

// A new segment; null when there is no room for it, even once everything that lies idle has been given back.
CudaPool::Block* CudaPool::grow(size_t bytes, bool small) {
  check_cuda(cudaSetDevice(device_), "allocating memory");
  void* memory = nullptr;
  const auto try_once = [&] { return budget_->allows(bytes) ? cudaMalloc(&memory, bytes) : cudaErrorMemoryAllocation; };
  cudaError_t status = try_once();
  if (status == cudaErrorMemoryAllocation && !capturing_) {
    cudaGetLastError();
    trim();
    budget_->trim_others(trim_entry_);
    status = try_once();
  }
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check_cuda(status, "allocating memory");
  budget_->take(bytes);
  auto block = std::make_unique<Block>();
  block->memory = static_cast<std::byte*>(memory);
  block->bytes = bytes;
  block->small = small;
  Block* made = block.get();
  blocks_.emplace(made, std::move(block));
  return made;
}

// Gives segments that are free as a whole back to the driver. Their last users may still be running.
void CudaPool::trim() {
  check_cuda(cudaSetDevice(device_), "giving memory back");
  check_cuda(cudaStreamSynchronize(stream_), "giving memory back");
  for (FreeList& list : free_)
    std::erase_if(list, [&](const FreeList::value_type& entry) {
      Block* block = entry.second;
      if (block->before || block->after) return false;
      cudaFree(block->memory);
      budget_->give_back(block->bytes);
      blocks_.erase(block);
      return true;
    });
}

void CudaPool::release(Block* block) {
  const std::lock_guard lock(mutex_);
  if (capturing_ && block->graph == capturing_) {
    make_free(block, captured_free_[block->small]);
  } else if (block->graph == 0) {
    // Let go of while capturing: the graph may read it at every replay, so it must not be written by anyone else.
    if (capturing_) {
      block->graph = capturing_;
      block->given_back = true;
    } else {
      count_free(block->bytes);
      make_free(block, free_[block->small]);
    }
  } else {
    block->given_back = true;
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
  for (FreeList& list : captured_free_) {
    for (const auto& [bytes, block] : list) {
      block->list = nullptr;
      block->given_back = true;
    }
    list.clear();
  }
}

void CudaPool::release_graph(GraphId graph) {
  const std::lock_guard lock(mutex_);
  std::vector<Block*> given_back;
  for (const auto& [block, owner] : blocks_)
    if (block->graph == graph) {
      block->graph = 0;
      if (block->given_back) given_back.push_back(block);
    }
  // Each of them may become part of a neighbour on the way; those not in a list yet are left alone until their turn.
  for (Block* block : given_back) {
    block->given_back = false;
    count_free(block->bytes);
    make_free(block, free_[block->small]);
  }
}

size_t CudaPool::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

}  // namespace flux2
