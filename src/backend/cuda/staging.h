#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <memory>

namespace flux2 {

// Page-locked host memory, from which copies to the device run on their own.
std::shared_ptr<void> pinned_memory(size_t bytes);

// Copies pageable memory to the device through two page-locked chunks: while one is on its way the other is filled.
class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();

  // Returns as soon as `host` has been read.
  void upload(void* device_memory, const void* host, size_t bytes, cudaStream_t stream);

 private:
  struct Chunk {
    std::shared_ptr<void> memory;
    cudaEvent_t sent = nullptr;
  };
  std::array<Chunk, 2> chunks_;
  size_t next_ = 0;
};

}  // namespace flux2
