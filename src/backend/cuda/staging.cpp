#include "backend/cuda/staging.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "backend/cuda/capture_gate.h"
#include "backend/cuda/cuda_error.h"

namespace flux2 {

namespace {

constexpr size_t kChunkBytes = size_t{32} << 20;
constexpr size_t kPieceBytes = size_t{1} << 20;     // what one reader copies at a time
constexpr size_t kSmallBytes = size_t{64} << 10;    // the driver copies this much aside by itself
constexpr size_t kDownloadBytes = size_t{8} << 20;  // transferred at a time while the bytes before are copied on

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

Staging::Chunk& Staging::next_chunk() {
  Chunk& chunk = chunks_[next_];
  next_ = (next_ + 1) % chunks_.size();
  if (!chunk.memory) {
    chunk.memory = pinned_memory(kChunkBytes);
    check_cuda(cudaEventCreateWithFlags(&chunk.sent, cudaEventDisableTiming), "page-locking host memory");
  }
  check_cuda(cudaEventSynchronize(chunk.sent), "copy");  // an event never recorded counts as passed
  return chunk;
}

void Staging::upload(void* device_memory, const void* host, size_t bytes, cudaStream_t stream) {
  if (bytes <= kSmallBytes) {
    check_cuda(cudaMemcpyAsync(device_memory, host, bytes, cudaMemcpyHostToDevice, stream), "upload");
    return;
  }
  auto* to = static_cast<std::byte*>(device_memory);
  const auto* from = static_cast<const std::byte*>(host);
  while (bytes > 0) {
    const Chunk& chunk = next_chunk();
    const size_t n = std::min(bytes, kChunkBytes);
    fill(static_cast<std::byte*>(chunk.memory.get()), from, n);
    check_cuda(cudaMemcpyAsync(to, chunk.memory.get(), n, cudaMemcpyHostToDevice, stream), "upload");
    check_cuda(cudaEventRecord(chunk.sent, stream), "upload");
    to += n;
    from += n;
    bytes -= n;
  }
}

void Staging::download(void* host, const void* device_memory, size_t bytes, cudaStream_t stream) {
  if (bytes <= kDownloadBytes) {
    check_cuda(cudaMemcpyAsync(host, device_memory, bytes, cudaMemcpyDeviceToHost, stream), "download");
    check_cuda(cudaStreamSynchronize(stream), "download");
    return;
  }
  auto* to = static_cast<std::byte*>(host);
  const auto* from = static_cast<const std::byte*>(device_memory);
  const Chunk* arriving = nullptr;  // the bytes before `start`
  size_t arriving_bytes = 0;
  const auto empty_chunk = [&](size_t start) {
    if (!arriving) return;
    check_cuda(cudaEventSynchronize(arriving->sent), "download");
    fill(to + start - arriving_bytes, static_cast<const std::byte*>(arriving->memory.get()), arriving_bytes);
  };
  for (size_t start = 0; start < bytes;) {
    const size_t n = std::min(bytes - start, kDownloadBytes);
    const Chunk& chunk = next_chunk();
    check_cuda(cudaMemcpyAsync(chunk.memory.get(), from + start, n, cudaMemcpyDeviceToHost, stream), "download");
    check_cuda(cudaEventRecord(chunk.sent, stream), "download");
    empty_chunk(start);
    arriving = &chunk;
    arriving_bytes = n;
    start += n;
  }
  empty_chunk(bytes);
}

}  // namespace flux2
