#pragma once

#include <cstddef>
#include <cstdint>

namespace flux2::gemm {

// Asks for memory that will be read soon. The addresses need not be valid.
inline void prefetch(const void* data, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const std::byte*>(data) + i);
}

}  // namespace flux2::gemm
