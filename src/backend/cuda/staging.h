#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <memory>

#include "base/thread_pool.h"

namespace flux2 {

// Page-locked host memory, from which copies to the device run asynchronously.
std::shared_ptr<void> pinned_memory(size_t bytes);

// Copies between pageable memory and the device through page-locked chunks: while some are being transferred, several threads
// fill or empty others, since one thread cannot read or write memory as fast as the bus.
class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();

  // Returns as soon as `host` has been read.
  void upload(void* device_memory, const void* host, size_t bytes, cudaStream_t stream);
  // Returns when all bytes have arrived.
  void download(void* host, const void* device_memory, size_t bytes, cudaStream_t stream);

 private:
  struct Chunk {
    std::shared_ptr<void> memory;
    cudaEvent_t sent = nullptr;  // its last transfer has ended
  };
  Chunk& next_chunk();  // one that no transfer uses
  void fill(std::byte* to, const std::byte* from, size_t bytes);

  std::array<Chunk, 3> chunks_;
  std::unique_ptr<ThreadPool> readers_;  // from the first large copy on
  size_t next_ = 0;
};

}  // namespace flux2
