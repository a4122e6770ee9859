#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "backend/cuda/kernels/launch.h"

// Conversions, vectors and reductions shared by the kernels.
namespace flux2::cuda {

using Bf16 = __nv_bfloat16;

// Calls f(T{}) with the device type of an activation dtype.
template <class F>
void with_float(const char* op, DType dtype, F&& f) {
  switch (dtype) {
    case DType::F32: f(float{}); break;
    case DType::BF16: f(Bf16{}); break;
    default: refuse_dtype(op, dtype);
  }
}

// Calls f(T{}, W{}) for activations T and a weight_vector W.
template <class F>
void with_float_and_weight(const char* op, DType dtype, DType weight, F&& f) {
  switch (dtype) {
    case DType::F32: f(float{}, float{}); break;
    case DType::BF16:
      if (weight == DType::BF16) f(Bf16{}, Bf16{});
      else f(Bf16{}, float{});
      break;
    default: refuse_dtype(op, dtype);
  }
}

__device__ inline float as_float(float v) { return v; }
__device__ inline float as_float(Bf16 v) { return __bfloat162float(v); }
template <class T>
__device__ T from_float(float v);
template <>
__device__ inline float from_float<float>(float v) {
  return v;
}
template <>
__device__ inline Bf16 from_float<Bf16>(float v) {
  return __float2bfloat16_rn(v);
}

// Two BF16 side by side in a register: half the instructions of taking them one by one.
__device__ inline float2 unpacked(uint32_t pair) { return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)}; }
__device__ inline uint32_t packed(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// V elements that move in one access; the address must be aligned to all of them.
template <class T, int V>
struct alignas(sizeof(T) * V) Pack {
  T v[V];
};

template <class T>
constexpr int kVector = 16 / sizeof(T);

template <int V, class T>
__device__ inline Pack<T, V> load_pack(const T* p) {
  return *reinterpret_cast<const Pack<T, V>*>(p);
}
template <int V, class T>
__device__ inline void store_pack(T* p, const Pack<T, V>& pack) {
  *reinterpret_cast<Pack<T, V>*>(p) = pack;
}

// To a few units in the last place, and zero where the result is no normal number: exact arithmetic costs more than the memory
// access around it.
__device__ inline float silu(float v) {
  float power, inverse;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(v * -1.4426950408889634f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + power));
  return v * inverse;
}

// silu'(x) = s + x · s · (1 − s) with s = sigmoid(x)
__device__ inline float silu_slope(float x) {
  const float s = 1.0f / (1.0f + __expf(-x));
  return s + x * s * (1.0f - s);
}

template <class T>
__device__ inline T warp_sum(T v) {
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
  return v;
}
__device__ inline float warp_max(float v) {
  for (int step = 16; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, step));
  return v;
}

// The sum over a block of kThreads (a multiple of 32), known to every thread, always added in the same order.
template <int kThreads, class T>
__device__ inline T block_sum(T v) {
  __shared__ T partial[kThreads / 32];
  v = warp_sum(v);
  __syncthreads();  // an earlier call may still be reading
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
  __syncthreads();
  T total = partial[0];
  for (int i = 1; i < kThreads / 32; ++i) total += partial[i];
  return total;
}
template <int kThreads>
__device__ inline float block_max(float v) {
  __shared__ float partial[kThreads / 32];
  v = warp_max(v);
  __syncthreads();
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
  __syncthreads();
  float largest = partial[0];
  for (int i = 1; i < kThreads / 32; ++i) largest = fmaxf(largest, partial[i]);
  return largest;
}

}  // namespace flux2::cuda
