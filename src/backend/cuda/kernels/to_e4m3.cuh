#pragma once

#include "backend/cuda/kernels/device_math.cuh"

// Rounding BF16 rows to e4m3 with one scale each, to nearest and ties to even: the numbers weights/quantise makes of them.
namespace flux2::cuda {

using E4m3 = __nv_fp8_e4m3;

template <int V>
__device__ inline float largest_of(const Pack<Bf16, V>& pack) {
  float largest = 0;
#pragma unroll
  for (int v = 0; v < V; ++v) largest = fmaxf(largest, fabsf(as_float(pack.v[v])));
  return largest;
}

// The largest value becomes the largest e4m3. NaN stays NaN, and so does what stands beside an infinity.
struct E4m3Scale {
  float factor;   // value = factor · stored
  float inverse;

  __device__ explicit E4m3Scale(float largest) : factor(largest / 448.0f), inverse(largest > 0 ? 448.0f / largest : 0.0f) {}

  template <int V>
  __device__ Pack<E4m3, V> round(const Pack<Bf16, V>& in) const {
    Pack<E4m3, V> out;
    if constexpr (V % 2 == 0) {
#pragma unroll
      for (int v = 0; v < V; v += 2) {
        const float2 pair = make_float2(as_float(in.v[v]) * inverse, as_float(in.v[v + 1]) * inverse);
        *reinterpret_cast<__nv_fp8x2_storage_t*>(&out.v[v]) = __nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, __NV_E4M3);
      }
    } else {
#pragma unroll
      for (int v = 0; v < V; ++v) out.v[v].__x = __nv_cvt_float_to_fp8(as_float(in.v[v]) * inverse, __NV_SATFINITE, __NV_E4M3);
    }
    return out;
  }
};

}  // namespace flux2::cuda
