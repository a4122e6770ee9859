#pragma once

#include <cstring>

#include "backend/cuda/kernels/quantised_blocks.cuh"

// Stored weights as floats, V neighbours at a time.
namespace flux2::cuda {

// Element i and its neighbours among blocks that lie one after the other; i is a multiple of V.
template <class Blocks>
struct Stored {
  const uint8_t* x;

  template <int V>
  __device__ void load(int64_t i, float (&out)[V]) const {
    Blocks::load(x + i / Blocks::kElements * Blocks::kBytes, static_cast<int>(i % Blocks::kElements), out);
  }
};

// Values of one byte, with a factor for each row, one for all, or none.
template <class S>
struct Bytes {
  const S* x;
  const float* scales;
  int64_t row_elements;  // that share a scale

  template <int V>
  __device__ void load(int64_t i, float (&out)[V]) const {
    const float scale = scales ? scales[i / row_elements] : 1.0f;
    const Pack<S, V> pack = load_pack<V>(x + i);
#pragma unroll
    for (int v = 0; v < V; ++v) out[v] = scale * static_cast<float>(pack.v[v]);
  }
};

// The values of a pack, to out[0 … V − 1]. Two of eight bits are converted together.
template <class S, int V>
__device__ inline void unpack(const Pack<S, V>& pack, float* out) {
#pragma unroll
  for (int v = 0; v < V; ++v) out[v] = static_cast<float>(pack.v[v]);
}
template <int V>
__device__ inline void unpack_fp8(const void* bytes, __nv_fp8_interpretation_t kind, float* out) {
  __nv_fp8x2_storage_t pairs[V / 2];
  memcpy(pairs, bytes, V);
#pragma unroll
  for (int v = 0; v < V; v += 2) {
    const float2 two = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(pairs[v / 2], kind)));
    out[v] = two.x;
    out[v + 1] = two.y;
  }
}
template <int V>
__device__ inline void unpack(const Pack<__nv_fp8_e4m3, V>& pack, float* out) {
  unpack_fp8<V>(pack.v, __NV_E4M3, out);
}
template <int V>
__device__ inline void unpack(const Pack<__nv_fp8_e5m2, V>& pack, float* out) {
  unpack_fp8<V>(pack.v, __NV_E5M2, out);
}

}  // namespace flux2::cuda
