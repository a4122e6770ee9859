#pragma once

#include "backend/cuda/kernels/device_math.cuh"

// Element j of a quantised block, as a float.
namespace flux2::cuda {

constexpr int kBlockElements = 32;

__device__ inline float scale_of(f16 scale) { return __half2float(__ushort_as_half(scale.bits)); }

__device__ inline float element(const BlockQ8_0& block, int j) { return scale_of(block.scale) * static_cast<float>(block.q[j]); }

__device__ inline float element(const BlockQ4_0& block, int j) {
  const int nibble = j < 16 ? block.q[j] & 15 : block.q[j - 16] >> 4;
  return scale_of(block.scale) * static_cast<float>(nibble - 8);
}

}  // namespace flux2::cuda
