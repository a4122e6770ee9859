#include "backend/cuda/staging.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "backend/cuda/capture_gate.h"
#include "backend/cuda/cuda_error.h"

namespace flux2 {

namespace {

constexpr size_t kChunkBytes = size_t{32} << 20;
constexpr size_t kPieceBytes = size_t{1} << 20;   // what one reader copies at a time
constexpr size_t kSmallBytes = size_t{64} << 10;  // the driver copies this much aside by itself

}  // namespace

std::shared_ptr<void> pinned_memory(size_t bytes) {
  const OutsideCaptures here;
  void* memory = nullptr;
  check_cuda(cudaMallocHost(&memory, std::max<size_t>(bytes, 1)), "page-locking host memory");
  return {memory, [](void* p) {
            const OutsideCaptures released_here;
            cudaFreeHost(p);
          }};
}

Staging::~Staging() {
  for (const Chunk& chunk : chunks_)
    if (chunk.sent) cudaEventDestroy(chunk.sent);
}

void Staging::fill(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes <= 2 * kPieceBytes) {
    std::memcpy(to, from, bytes);
    return;
  }
  if (!readers_) readers_ = std::make_unique<ThreadPool>(std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 8));
  readers_->parallel_for(static_cast<int64_t>((bytes + kPieceBytes - 1) / kPieceBytes), [&](int64_t i) {
    const size_t start = static_cast<size_t>(i) * kPieceBytes;
    std::memcpy(to + start, from + start, std::min(kPieceBytes, bytes - start));
  });
}

void Staging::upload(void* device_memory, const void* host, size_t bytes, cudaStream_t stream) {
  if (bytes <= kSmallBytes) {
    check_cuda(cudaMemcpyAsync(device_memory, host, bytes, cudaMemcpyHostToDevice, stream), "upload");
    return;
  }
  auto* to = static_cast<std::byte*>(device_memory);
  const auto* from = static_cast<const std::byte*>(host);
  while (bytes > 0) {
    Chunk& chunk = chunks_[next_];
    next_ = (next_ + 1) % chunks_.size();
    if (!chunk.memory) {
      chunk.memory = pinned_memory(kChunkBytes);
      check_cuda(cudaEventCreateWithFlags(&chunk.sent, cudaEventDisableTiming), "upload");
    }
    check_cuda(cudaEventSynchronize(chunk.sent), "upload");  // an event never recorded counts as passed
    const size_t n = std::min(bytes, kChunkBytes);
    fill(static_cast<std::byte*>(chunk.memory.get()), from, n);
    check_cuda(cudaMemcpyAsync(to, chunk.memory.get(), n, cudaMemcpyHostToDevice, stream), "upload");
    check_cuda(cudaEventRecord(chunk.sent, stream), "upload");
    to += n;
    from += n;
    bytes -= n;
  }
}

}  // namespace flux2
