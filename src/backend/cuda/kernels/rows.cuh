#pragma once

#include <algorithm>

#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/tensor_map.h"

// For kernels that hold rows in registers and work on one row after the other.
namespace flux2::cuda {

// V elements as the words they arrive in. The compiler gives each BF16 of a Pack a register of its own where it is kept for
// long; here two share one.
template <class T, int V>
struct alignas(sizeof(T) * V) Words {
  uint32_t word[sizeof(T) * V / 4];

  __device__ float operator[](int v) const {
    if constexpr (sizeof(T) == 4) return __uint_as_float(word[v]);
    else return __uint_as_float(v % 2 == 0 ? word[v / 2] << 16 : word[v / 2] & 0xffff0000u);
  }
};

template <int V, class T>
__device__ inline Words<T, V> load_words(const T* p) {
  return *reinterpret_cast<const Words<T, V>*>(p);
}
template <int V, class T>
__device__ inline void store_words(T* p, const Words<T, V>& words) {
  *reinterpret_cast<Words<T, V>*>(p) = words;
}

// Of value(v), rounded to T.
template <class T, int V, class F>
__device__ inline Words<T, V> words_of(const F& value) {
  Words<T, V> out;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(T)) * V / 4; ++i) {
    if constexpr (sizeof(T) == 4) out.word[i] = __float_as_uint(value(i));
    else out.word[i] = packed(value(2 * i), value(2 * i + 1));
  }
  return out;
}

// kGroup threads: a whole block, or a part of a warp with the other groups beside it. Every thread gets the sums, which are
// always added in the same order. A block needs one barrier for each call, because calls take turns with two buffers: whoever
// writes one has passed the barrier of the call in between, and so all threads have read what was in it.
template <int kGroup, int kMost = 1>
class GroupSums {
 public:
  template <int N>
  __device__ void add(float (&v)[N]) {
    static_assert(N <= kMost);
#pragma unroll
    for (int step = (kGroup < 32 ? kGroup : 32) / 2; step > 0; step /= 2)
#pragma unroll
      for (int n = 0; n < N; ++n) v[n] += __shfl_xor_sync(0xffffffffu, v[n], step);
    if constexpr (kGroup > 32) {
      __shared__ float partial[2][kMost][kGroup / 32];
      auto& mine = partial[turn_];
      turn_ ^= 1;
      if (threadIdx.x % 32 == 0)
#pragma unroll
        for (int n = 0; n < N; ++n) mine[n][threadIdx.x / 32] = v[n];
      __syncthreads();
#pragma unroll
      for (int n = 0; n < N; ++n) {
        v[n] = mine[n][0];
#pragma unroll
        for (int warp = 1; warp < kGroup / 32; ++warp) v[n] += mine[n][warp];
      }
    }
  }

 private:
  int turn_ = 0;
};

// How many of `wanted` blocks start, if those that do take over the work of the others: what fits on the GPU at once, with
// `per_multiprocessor` of them on each and `parts` blocks for each unit of work.
inline unsigned staying_blocks(unsigned wanted, int per_multiprocessor, unsigned parts = 1) {
  return std::min(wanted, std::max(static_cast<unsigned>(multiprocessors() * per_multiprocessor) / parts, 1u));
}

}  // namespace flux2::cuda
