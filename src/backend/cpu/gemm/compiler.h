#pragma once

#include <cstddef>
#include <cstdint>

namespace flux2::gemm {

// Asks for memory that will be read soon. The addresses need not be valid.
inline void prefetch(const void* data, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const std::byte*>(data) + i);
}

}  // namespace flux2::gemm

// For plain loops which the compiler turns into vector code: on x86-64 the function is compiled for several levels of
// the architecture, and the loader picks the best this machine has. Elsewhere the baseline already has the vectors.
// Sanitizers run their own code in the loader's choice, which comes too early for it, and clang does not know the levels.
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FLUX2_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FLUX2_CLONES
#endif
