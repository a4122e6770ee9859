#pragma once

#include "backend/cuda/kernels/device_math.cuh"

// Values of stored blocks, with the same bits as tensor/blocks.h gives on the host: products and sums are rounded one by one.
// Each type says where in its bytes things lie (@offset) and gives V neighbours that begin at a multiple of V, V ≤ 16, so that
// they share a group. Blocks begin at even addresses.
namespace flux2::cuda {

__device__ inline float half_at(const uint8_t* at) {
  return __half2float(__ushort_as_half(*reinterpret_cast<const uint16_t*>(at)));
}
__device__ inline uint32_t word_at(const uint8_t* at) {
  const auto* halves = reinterpret_cast<const uint16_t*>(at);
  return halves[0] | static_cast<uint32_t>(halves[1]) << 16;
}
// scale · code + offset without the single rounding of a fused operation.
__device__ inline float shifted(float scale, int code, float offset) {
  return __fadd_rn(__fmul_rn(scale, static_cast<float>(code)), offset);
}

// V neighbouring bytes, read four at a time. They begin at an even address unless V is 1. The words that hold them may hold two
// bytes more before the first, or after the last.
template <int V>
struct ByteRun {
  uint32_t words[(V + 3) / 4];

  __device__ explicit ByteRun(const uint8_t* at) {
    if constexpr (V < 4) {
      words[0] = 0;
#pragma unroll
      for (int v = 0; v < V; ++v) words[0] |= static_cast<uint32_t>(at[v]) << 8 * v;
    } else {
      const bool between = reinterpret_cast<uintptr_t>(at) & 2;  // they begin in the middle of a word
      const auto* from = reinterpret_cast<const uint32_t*>(at - (between ? 2 : 0));
      uint32_t next[V / 4 + 1];
#pragma unroll
      for (int i = 0; i < V / 4; ++i) next[i] = from[i];
      next[V / 4] = between ? from[V / 4] : 0;
#pragma unroll
      for (int i = 0; i < V / 4; ++i) words[i] = __funnelshift_r(next[i], next[i + 1], between ? 16 : 0);
    }
  }
  __device__ int operator[](int v) const { return static_cast<int>(words[v / 4] >> 8 * (v % 4) & 255u); }
};

// V codes from number `first` on of 32 in sixteen bytes: low nibbles first, then the high ones.
template <int V>
struct Nibbles {
  ByteRun<V> bytes;
  int shift;

  __device__ Nibbles(const uint8_t* codes, int first) : bytes(codes + (first & 15)), shift(first & 16 ? 4 : 0) {}
  __device__ int operator[](int v) const { return (bytes[v] >> shift) & 15; }
};

__constant__ const int8_t kNonlinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

struct BlocksQ8_0 {  // d @0, codes @2
  static constexpr int kElements = 32, kBytes = 34;
  template <int V>
  __device__ static void load(const uint8_t* b, int first, float (&out)[V]) {
    const float d = half_at(b);
    const ByteRun<V> codes(b + 2 + first);
#pragma unroll
    for (int v = 0; v < V; ++v) out[v] = d * static_cast<float>(static_cast<int8_t>(codes[v]));
  }
};

struct BlocksQ4_0 {  // d @0, codes @2
  static constexpr int kElements = 32, kBytes = 18;
  template <int V>
  __device__ static void load(const uint8_t* b, int first, float (&out)[V]) {
    const float d = half_at(b);
    const Nibbles<V> codes(b + 2, first);
#pragma unroll
    for (int v = 0; v < V; ++v) out[v] = d * static_cast<float>(codes[v] - 8);
  }
};

struct BlocksQ4_1 {  // d @0, m @2, codes @4
  static constexpr int kElements = 32, kBytes = 20;
  template <int V>
  __device__ static void load(const uint8_t* b, int first, float (&out)[V]) {
    const float d = half_at(b), m = half_at(b + 2);
    const Nibbles<V> codes(b + 4, first);
#pragma unroll
    for (int v = 0; v < V; ++v) out[v] = shifted(d, codes[v], m);
  }
};

struct BlocksQ5_0 {  // d @0, fifth bits @2, codes @6
  static constexpr int kElements = 32, kBytes = 22;
  template <int V>
  __device__ static void load(const uint8_t* b, int first, float (&out)[V]) {
    const float d = half_at(b);
    const uint32_t fifth = word_at(b + 2) >> first;
    const Nibbles<V> codes(b + 6, first);
#pragma unroll
    for (int v = 0; v < V; ++v) out[v] = d * static_cast<float>((codes[v] | static_cast<int>((fifth >> v) & 1u) << 4) - 16);
  }
};

struct BlocksQ5_1 {  // d @0, m @2, fifth bits @4, codes @8
  static constexpr int kElements = 32, kBytes = 24;
  template <int V>
  __device__ static void load(const uint8_t* b, int first, float (&out)[V]) {
    const float d = half_at(b), m = half_at(b + 2);
    const uint32_t fifth = word_at(b + 4) >> first;
    const Nibbles<V> codes(b + 8, first);
#pragma unroll
    for (int v = 0; v < V; ++v) out[v] = shifted(d, codes[v] | static_cast<int>((fifth >> v) & 1u) << 4, m);
  }
};

struct BlocksIQ4_NL {  // d @0, codes @2
  static constexpr int kElements = 32, kBytes = 18;
  template <int V>
  __device__ static void load(const uint8_t* b, int first, float (&out)[V]) {
    const float d = half_at(b);
    const Nibbles<V> codes(b + 2, first);
#pragma unroll
    for (int v = 0; v < V; ++v) out[v] = d * static_cast<float>(kNonlinear[codes[v]]);
  }
};

struct BlocksQ2_K {  // a scale and a minimum for each 16 @0, codes @16, d @80, dmin @82
  static constexpr int kElements = 256, kBytes = 84;
  template <int V>
  __device__ static void load(const uint8_t* b, int first, float (&out)[V]) {
    const int group = first / 16, shift = 2 * (group % 8 / 2);
    const float scale = half_at(b + 80) * static_cast<float>(b[group] & 15);
    const float low = half_at(b + 82) * static_cast<float>(b[group] >> 4);
    const ByteRun<V> codes(b + 16 + 32 * (group / 8) + first % 32);
#pragma unroll
    for (int v = 0; v < V; ++v) out[v] = shifted(scale, (codes[v] >> shift) & 3, -low);
  }
};

struct BlocksQ3_K {  // third bits @0, codes @32, scales @96, d @108
  static constexpr int kElements = 256, kBytes = 110;
  template <int V>
  __device__ static void load(const uint8_t* b, int first, float (&out)[V]) {
    const int group = first / 16, shift = 2 * (group % 8 / 2), bit = group / 2;
    const int low = (b[96 + group % 8] >> 4 * (group / 8)) & 15, high = (b[104 + group % 4] >> 2 * (group / 4)) & 3;
    const float scale = half_at(b + 108) * static_cast<float>((low | high << 4) - 32);
    const ByteRun<V> codes(b + 32 + 32 * (group / 8) + first % 32), third(b + first % 32);
#pragma unroll
    for (int v = 0; v < V; ++v) out[v] = scale * static_cast<float>(((codes[v] >> shift) & 3) + 4 * ((third[v] >> bit) & 1) - 4);
  }
};

// Scale and minimum of one of the eight groups of Q4_K and Q5_K, times their factors: d @0, dmin @2, packed numbers @4.
struct GroupOfKBlock {
  float scale, low;
  __device__ GroupOfKBlock(const uint8_t* b, int group) {
    const uint8_t* p = b + 4;
    const int i = group % 4;
    const int s = group < 4 ? p[i] & 63 : (p[8 + i] & 15) | (p[i] >> 6) << 4;
    const int m = group < 4 ? p[4 + i] & 63 : (p[8 + i] >> 4) | (p[4 + i] >> 6) << 4;
    scale = half_at(b) * static_cast<float>(s);
    low = half_at(b + 2) * static_cast<float>(m);
  }
};

struct BlocksQ4_K {  // codes @16
  static constexpr int kElements = 256, kBytes = 144;
  template <int V>
  __device__ static void load(const uint8_t* b, int first, float (&out)[V]) {
    const int group = first / 32, shift = 4 * (group % 2);
    const GroupOfKBlock g(b, group);
    const ByteRun<V> codes(b + 16 + 32 * (group / 2) + first % 32);
#pragma unroll
    for (int v = 0; v < V; ++v) out[v] = shifted(g.scale, (codes[v] >> shift) & 15, -g.low);
  }
};

struct BlocksQ5_K {  // fifth bits @16, codes @48
  static constexpr int kElements = 256, kBytes = 176;
  template <int V>
  __device__ static void load(const uint8_t* b, int first, float (&out)[V]) {
    const int group = first / 32, shift = 4 * (group % 2);
    const GroupOfKBlock g(b, group);
    const ByteRun<V> codes(b + 48 + 32 * (group / 2) + first % 32), fifth(b + 16 + first % 32);
#pragma unroll
    for (int v = 0; v < V; ++v) out[v] = shifted(g.scale, ((codes[v] >> shift) & 15) + 16 * ((fifth[v] >> group) & 1), -g.low);
  }
};

struct BlocksQ6_K {  // low nibbles @0, upper two bits @128, scales @192, d @208
  static constexpr int kElements = 256, kBytes = 210;
  template <int V>
  __device__ static void load(const uint8_t* b, int first, float (&out)[V]) {
    const int half = first / 128, place = first % 128 / 16;  // eight groups to each half of the block
    const float scale = half_at(b + 208) * static_cast<float>(static_cast<int8_t>(b[192 + first / 16]));
    const ByteRun<V> low(b + 64 * half + first % 64), high(b + 128 + 32 * half + first % 32);
    const int low_shift = 4 * (place / 4), high_shift = 2 * (place / 2);
#pragma unroll
    for (int v = 0; v < V; ++v)
      out[v] = scale * static_cast<float>((((low[v] >> low_shift) & 15) | ((high[v] >> high_shift) & 3) << 4) - 32);
  }
};

struct BlocksIQ4_XS {  // d @0, upper two bits of the scales @2, their low nibbles @4, codes @8
  static constexpr int kElements = 256, kBytes = 136;
  template <int V>
  __device__ static void load(const uint8_t* b, int first, float (&out)[V]) {
    const int group = first / 32, high = b[2] | b[3] << 8;
    const int number = ((b[4 + group / 2] >> 4 * (group % 2)) & 15) | ((high >> 2 * group) & 3) << 4;
    const float scale = half_at(b) * static_cast<float>(number - 32);
    const Nibbles<V> codes(b + 8 + 16 * group, first % 32);
#pragma unroll
    for (int v = 0; v < V; ++v) out[v] = scale * static_cast<float>(kNonlinear[codes[v]]);
  }
};

__device__ inline float e4m3_of(int bits) {
  __nv_fp8_e4m3 v;
  v.__x = static_cast<__nv_fp8_storage_t>(bits);
  return static_cast<float>(v);
}

struct BlocksF8_128 {  // scale @0, values @4
  static constexpr int kElements = 128, kBytes = 132;
  template <int V>
  __device__ static void load(const uint8_t* b, int first, float (&out)[V]) {
    const float scale = *reinterpret_cast<const float*>(b);
    const ByteRun<V> codes(b + 4 + first);
#pragma unroll
    for (int v = 0; v < V; ++v) out[v] = e4m3_of(codes[v]) * scale;
  }
};

__constant__ const float kE2m1[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};

struct BlocksNvfp4 {  // factor @0, scales @4, codes @12, the even element in the low nibble
  static constexpr int kElements = 128, kBytes = 76;
  template <int V>
  __device__ static void load(const uint8_t* b, int first, float (&out)[V]) {
    const float scale = __fmul_rn(e4m3_of(b[4 + first / 16]), *reinterpret_cast<const float*>(b));
    const ByteRun<(V + 1) / 2> codes(b + 12 + first / 2);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const int code = (codes[v / 2] >> 4 * ((first + v) % 2)) & 15;
      out[v] = copysignf(kE2m1[code & 7], code & 8 ? -1.0f : 1.0f) * scale;
    }
  }
};

// Calls f(Blocks{}) for the block type of that name.
template <class F>
void with_blocks(const char* op, DType dtype, F&& f) {
  switch (dtype) {
    case DType::Q8_0: return f(BlocksQ8_0{});
    case DType::Q4_0: return f(BlocksQ4_0{});
    case DType::Q4_1: return f(BlocksQ4_1{});
    case DType::Q5_0: return f(BlocksQ5_0{});
    case DType::Q5_1: return f(BlocksQ5_1{});
    case DType::IQ4_NL: return f(BlocksIQ4_NL{});
    case DType::Q2_K: return f(BlocksQ2_K{});
    case DType::Q3_K: return f(BlocksQ3_K{});
    case DType::Q4_K: return f(BlocksQ4_K{});
    case DType::Q5_K: return f(BlocksQ5_K{});
    case DType::Q6_K: return f(BlocksQ6_K{});
    case DType::IQ4_XS: return f(BlocksIQ4_XS{});
    case DType::F8_128: return f(BlocksF8_128{});
    case DType::NVFP4: return f(BlocksNvfp4{});
    default: refuse_dtype(op, dtype);
  }
}

}  // namespace flux2::cuda
