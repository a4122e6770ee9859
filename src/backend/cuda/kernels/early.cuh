#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

// Kernels that begin while the kernel before them in the stream still ends. The kernels of a language model's next token are so
// short that starting the next one, and its first reads from memory, cost as much as their work; a kernel that begins early does
// both meanwhile.
//
// Such a kernel calls wait_for_earlier() in all of its threads. Before that it may read only what no kernel of the running chain
// writes, weights above all, and it writes nothing at all. The chain reaches back to the last kernel of the stream that was
// launched in the usual way. After that, all earlier work is complete, because every kernel of the chain waits like this.
namespace flux2::cuda {

// Lets the next kernel begin as soon as this one leaves room on a multiprocessor.
__device__ inline void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ inline void wait_for_earlier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Sixteen or two bytes that an earlier kernel has written. Plain loads of what looks constant may be moved before the wait.
__device__ inline uint4 load_written(const void* p) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
  return v;
}
__device__ inline float load_written_float(const float* p) {
  float v;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
  return v;
}
__device__ inline unsigned short load_written_half(const void* p) {
  unsigned short v;
  asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(v) : "l"(p) : "memory");
  return v;
}

// Whether the code that runs on the current GPU was compiled with the instructions above, and with clusters.
inline bool begins_early(const void* kernel) {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.ptxVersion >= 90;
}

struct EarlyLaunch {
  dim3 grid;
  int threads;
  size_t shared_bytes;
  cudaStream_t stream;
  unsigned cluster = 1;  // neighbouring blocks that form a cluster
};

// Errors are those of the next cudaGetLastError().
template <class Args>
void launch_early(void (*kernel)(Args), const EarlyLaunch& launch, const Args& args) {
  cudaLaunchConfig_t config{};
  config.gridDim = launch.grid;
  config.blockDim = dim3(static_cast<unsigned>(launch.threads));
  config.dynamicSmemBytes = launch.shared_bytes;
  config.stream = launch.stream;
  cudaLaunchAttribute attributes[2] = {};
  if (begins_early(reinterpret_cast<const void*>(kernel))) {
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    config.numAttrs = 1;
    if (launch.cluster > 1) {
      attributes[1].id = cudaLaunchAttributeClusterDimension;
      attributes[1].val.clusterDim.x = launch.cluster;
      attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
      config.numAttrs = 2;
    }
  }
  config.attrs = attributes;
  constexpr size_t kWithoutAsking = size_t{48} << 10;
  if (launch.shared_bytes > kWithoutAsking)
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(launch.shared_bytes));
  cudaLaunchKernelEx(&config, kernel, args);
}

}  // namespace flux2::cuda
