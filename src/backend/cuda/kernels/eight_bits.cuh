#pragma once

#include "backend/cuda/kernels/device_math.cuh"

// Rounding BF16 rows to 8 bits with one scale each, to nearest and ties to even: the numbers weights/quantise makes of them.
namespace flux2::cuda {

using E4m3 = __nv_fp8_e4m3;

// Elements v and v + 1.
template <int V>
__device__ inline uint32_t pair_at(const Pack<Bf16, V>& pack, int v) {
  return *reinterpret_cast<const uint32_t*>(&pack.v[v]);
}

// The largest magnitude of a row. Magnitudes of BF16 order like their bits, NaN above all, so that integers find it two at a
// time.
struct Largest {
  uint32_t bits = 0;  // of two numbers

  template <int V>
  __device__ void see(const Pack<Bf16, V>& pack) {
    if constexpr (V == 1) {
      bits = max(bits, static_cast<uint32_t>(__bfloat16_as_ushort(pack.v[0]) & 0x7fffu));
    } else {
#pragma unroll
      for (int v = 0; v < V; v += 2) bits = __vmaxu2(bits, pair_at(pack, v) & 0x7fff7fffu);
    }
  }

  // Of what all threads of a warp, or of a block of kGroup, have seen.
  template <int kGroup>
  __device__ float among() const {
    uint32_t largest = __reduce_max_sync(0xffffffffu, max(bits >> 16, bits & 0xffffu));
    if constexpr (kGroup > 32) {
      __shared__ uint32_t partial[kGroup / 32];
      if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = largest;
      __syncthreads();
      for (int i = 0; i < kGroup / 32; ++i) largest = max(largest, partial[i]);
    }
    return __uint_as_float(largest << 16);
  }
};

// The scale of a row that is stored as Q: the largest value becomes the largest Q. A row with NaN or infinity in it gets a scale
// of NaN or infinity, so that it shows in the product.
template <class Q>
struct RowScale;

template <>
struct RowScale<int8_t> {
  float factor;  // value = factor · stored
  float inverse;

  __device__ explicit RowScale(float largest) : factor(largest / 127.0f), inverse(largest > 0 ? 127.0f / largest : 0.0f) {}

  template <int V>
  __device__ Pack<int8_t, V> round(const Pack<Bf16, V>& in) const {
    Pack<int8_t, V> out;
#pragma unroll
    for (int v = 0; v < V; ++v) out.v[v] = static_cast<int8_t>(max(-127, min(127, __float2int_rn(as_float(in.v[v]) * inverse))));
    return out;
  }
};

template <>
struct RowScale<E4m3> {
  float factor;
  float inverse;

  __device__ explicit RowScale(float largest) : factor(largest / 448.0f), inverse(largest > 0 ? 448.0f / largest : 0.0f) {}

  template <int V>
  __device__ Pack<E4m3, V> round(const Pack<Bf16, V>& in) const {
    Pack<E4m3, V> out;
    if constexpr (V % 2 == 0) {
#pragma unroll
      for (int v = 0; v < V; v += 2) {
        const float2 pair = unpacked(pair_at(in, v));
        *reinterpret_cast<__nv_fp8x2_storage_t*>(&out.v[v]) =
            __nv_cvt_float2_to_fp8x2(make_float2(pair.x * inverse, pair.y * inverse), __NV_SATFINITE, __NV_E4M3);
      }
    } else {
#pragma unroll
      for (int v = 0; v < V; ++v) out.v[v].__x = __nv_cvt_float_to_fp8(as_float(in.v[v]) * inverse, __NV_SATFINITE, __NV_E4M3);
    }
    return out;
  }
};

}  // namespace flux2::cuda
