#include <algorithm>
#include <climits>
#include <type_traits>

#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/early.cuh"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/matrix.h"
#include "backend/cuda/kernels/parts.h"

// Products of one row with up to three weights: a language model's next token. All the time goes into reading the weights, so
// everything serves to keep the memory busy:
//
// * A block is there once per multiprocessor and takes tiles of 8 or 16 neighbouring rows of the weights, one after the other.
// Its
//   warps share K. Each of them has several copies from memory to its own part of a ring in shared memory under way, across the
//   ends of tiles, so that 64 KiB are on their way to every multiprocessor at any time.
// * The first copies are asked for before the earlier kernels of the stream have ended (early.cuh).
// * Tensor cores multiply, because converting and multiplying weights one by one takes more instructions than the multiprocessor
//   has cycles for. An instruction multiplies 16 rows of weights with 8 columns, which all hold x; even columns hold x rounded to
//   the type of the product and odd ones, after a norm, what the rounding left. Weights are not rounded.
// * x and its norm are computed by every block for itself.
namespace flux2::cuda {

namespace {

constexpr int kWarps = 16, kThreads = 32 * kWarps;
constexpr int kRingBytes = 64 << 10;
constexpr int kMostWeights = 3;
constexpr int kGroup = 8;  // values of x that are handled together

// --- instructions

// With fewer than 16 bytes, the rest is filled with zeros.
__device__ inline void copy_16(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ inline void end_of_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kUnderWay>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kUnderWay) : "memory");
}

// sums += a · b, a of 16 rows and b of 8 columns, 16 deep. Lane (g, t) = (lane / 4, lane % 4) holds rows g and g + 8 of a, column
// g of b and columns 2t and 2t + 1 of rows g and g + 8 of the sums.
struct OneStep {
  uint32_t top[2], bottom[2];  // rows g and g + 8: two pairs of neighbours each
};
__device__ inline void multiply(float (&sums)[4], const OneStep& a, uint32_t b0, uint32_t b1, Bf16 /*type*/) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a.top[0]), "r"(a.bottom[0]), "r"(a.top[1]), "r"(a.bottom[1]), "r"(b0), "r"(b1));
}
__device__ inline void multiply(float (&sums)[4], const OneStep& a, uint32_t b0, uint32_t b1, __half /*type*/) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a.top[0]), "r"(a.bottom[0]), "r"(a.top[1]), "r"(a.bottom[1]), "r"(b0), "r"(b1));
}

__device__ inline uint32_t bits_of(__half2 v) { return *reinterpret_cast<const uint32_t*>(&v); }
__device__ inline __half2 halves_of(uint32_t v) { return *reinterpret_cast<const __half2*>(&v); }
__device__ inline __half2 both(float v) { return __float2half2_rn(v); }

// --- x in shared memory

// Where group `group` of x (8 values) lies, and which values share a register, is up to the weights. With kSplit, 16 bytes of
// rounded values are followed by 16 bytes of what the rounding left.
template <class Operand, bool kSplit>
struct RowOfX {
  static constexpr int kPitch = kSplit ? 2 : 1;  // of chunks of 16 bytes
  uint4* chunks;

  // What lane (g, t) multiplies with.
  __device__ uint4 at(int chunk) const { return chunks[chunk * kPitch + (kSplit ? (threadIdx.x >> 2) & 1 : 0)]; }

  __device__ static uint32_t pair(float first, float second) {
    if constexpr (std::is_same_v<Operand, Bf16>) return packed(first, second);
    else return bits_of(__floats2half2_rn(first, second));
  }
  __device__ static float2 pair_of(uint32_t bits) {
    if constexpr (std::is_same_v<Operand, Bf16>) return unpacked(bits);
    else return __half22float2(halves_of(bits));
  }
  // kPairs pairs to place `place`, counted in registers within the chunk.
  template <int kPairs>
  __device__ void store(int chunk, int place, const float2 (&values)[kPairs]) const {
    uint32_t* const to = reinterpret_cast<uint32_t*>(chunks + chunk * kPitch) + place;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const uint32_t rounded = pair(values[i].x, values[i].y);
      to[i] = rounded;
      if constexpr (kSplit) {
        const float2 r = pair_of(rounded);
        to[i + 4] = pair(values[i].x - r.x, values[i].y - r.y);
      }
    }
  }
};

// --- weights

// A step of a warp takes some neighbours of K of all rows of a tile. fetch() asks for them, with `rows` the first row of the tile
// and `last` its last row that exists, and multiply_step() multiplies them.

// Values of one or two bytes. Lane (g, t) copies and multiplies 16 bytes of rows g (and g + 8) that no other lane needs.
template <class S, int kHalves>
struct PlainWeights {
  using Operand = std::conditional_t<std::is_same_v<S, Bf16>, Bf16, __half>;
  static constexpr bool kShared = false;  // between the lanes of a warp
  static constexpr int kRows = 8 * kHalves, kValues = 16 / sizeof(S), kStep = 4 * kValues;
  static constexpr int kStageBytes = kHalves * 512;
  static constexpr bool kScaled = std::is_same_v<Operand, __half>;  // x is multiplied by a power of two before it is rounded

  __device__ static void fetch(uint32_t stage, const uint8_t* rows, int last, int row_bytes, int step) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int at = (4 * step + t) * 16, bytes = at < row_bytes ? 16 : 0;
#pragma unroll
    for (int h = 0; h < kHalves; ++h)
      copy_16(stage + (h * 32 + lane) * 16, rows + (bytes > 0 ? min(8 * h + g, last) * row_bytes + at : 0), bytes);
  }

  // Chunk j of the kValues / 8 that lane t needs for a step lies beside those of the other lanes.
  template <class X>
  __device__ static void store(const X& x, int group, const float (&v)[kGroup]) {
    constexpr int kChunks = kValues / 8;
    const int chunk = (group / (4 * kChunks) * kChunks + group % kChunks) * 4 + group / kChunks % 4;
    x.store(chunk, 0, {{v[0], v[1]}, {v[2], v[3]}, {v[4], v[5]}, {v[6], v[7]}});
  }

  // Two pairs of neighbours from word i of 16 bytes: values 4i … 4i + 3 of one byte.
  __device__ static void widen(uint32_t word, uint32_t (&pairs)[2]) {
    if constexpr (std::is_same_v<S, int8_t>) {
      const uint32_t shifted = word ^ 0x80808080u;  // + 128; as the last bits of 1024 they make 1152 + value
      pairs[0] = bits_of(__hsub2(halves_of(__byte_perm(shifted, 0x64646464u, 0x4140)), both(1152.0f)));
      pairs[1] = bits_of(__hsub2(halves_of(__byte_perm(shifted, 0x64646464u, 0x4342)), both(1152.0f)));
    } else {
      pairs[0] = bits_of(__half2(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(word & 0xffffu), __NV_E4M3)));
      pairs[1] = bits_of(__half2(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(word >> 16), __NV_E4M3)));
    }
  }

  template <class X>
  __device__ static void multiply_step(const uint8_t* stage, const X& x, int step, float (&sums)[4]) {
    const int lane = threadIdx.x % 32, t = lane % 4;
    const uint4 zeros{};
    const uint4 halves[2] = {reinterpret_cast<const uint4*>(stage)[lane],
                             kHalves == 2 ? reinterpret_cast<const uint4*>(stage)[32 + lane] : zeros};
    const uint32_t top[4] = {halves[0].x, halves[0].y, halves[0].z, halves[0].w};
    const uint32_t bottom[4] = {halves[1].x, halves[1].y, halves[1].z, halves[1].w};
    if constexpr (sizeof(S) == 2) {
      const uint4 b = x.at(4 * step + t);
      multiply(sums, {{top[0], top[1]}, {bottom[0], bottom[1]}}, b.x, b.y, Operand{});
      multiply(sums, {{top[2], top[3]}, {bottom[2], bottom[3]}}, b.z, b.w, Operand{});
    } else {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const uint4 b = x.at((2 * step + j) * 4 + t);
        OneStep first{}, second{};
        widen(top[2 * j], first.top);
        widen(top[2 * j + 1], second.top);
        if constexpr (kHalves == 2) {
          widen(bottom[2 * j], first.bottom);
          widen(bottom[2 * j + 1], second.bottom);
        }
        multiply(sums, first, b.x, b.y, Operand{});
        multiply(sums, second, b.z, b.w, Operand{});
      }
    }
  }
};

// Eight blocks of 32 values of each row: the lanes of a warp share the bytes that they copied.
template <int kBlockBytes, int kOfRows>
struct BlockedWeights {
  using Operand = __half;
  static constexpr bool kShared = true, kScaled = true;
  static constexpr int kRows = kOfRows, kBlocks = 8, kStep = 32 * kBlocks, kPitch = kBlocks * kBlockBytes;
  static constexpr int kStageBytes = kRows * kPitch;
  static_assert(kPitch % 16 == 0);  // K is a multiple of kStep, so that every row begins at a multiple of 16 bytes

  __device__ static void fetch(uint32_t stage, const uint8_t* rows, int last, int row_bytes, int step) {
    constexpr int kPieces = kPitch / 16, kAll = kRows * kPieces;
#pragma unroll
    for (int i = 0; i < (kAll + 31) / 32; ++i) {
      const int piece = static_cast<int>(threadIdx.x % 32) + 32 * i;
      if (piece < kAll)
        copy_16(stage + piece * 16, rows + min(piece / kPieces, last) * row_bytes + step * kPitch + piece % kPieces * 16, 16);
    }
  }

  // Word i of those that begin at `at`, an even address that is no multiple of 4 if kBetween.
  template <bool kBetween, int kWords>
  __device__ static void load_words(const uint8_t* at, uint32_t (&words)[kWords]) {
    const auto* from = reinterpret_cast<const uint32_t*>(at - (kBetween ? 2 : 0));
    if constexpr (kBetween) {
      uint32_t next[kWords + 1];
#pragma unroll
      for (int i = 0; i <= kWords; ++i) next[i] = from[i];
#pragma unroll
      for (int i = 0; i < kWords; ++i) words[i] = __funnelshift_r(next[i], next[i + 1], 16);
    } else {
#pragma unroll
      for (int i = 0; i < kWords; ++i) words[i] = from[i];
    }
  }
  __device__ static float factor(const uint8_t* block) {
    return __half2float(__ushort_as_half(*reinterpret_cast<const uint16_t*>(block)));
  }
};

struct WeightsQ4_0 : BlockedWeights<18, 16> {
  // Lane t takes word t of a block's codes: values 4t … 4t + 3 in the low nibbles, those 16 further in the high ones. The pairs
  // of a register are two bytes apart.
  template <class X>
  __device__ static void store(const X& x, int group, const float (&v)[kGroup]) {
    const int chunk = group / 4 * 4 + group % 2 * 2, place = group % 4 / 2 * 2;
    x.store(chunk, place, {{v[0], v[2]}, {v[1], v[3]}});
    x.store(chunk + 1, place, {{v[4], v[6]}, {v[5], v[7]}});
  }

  // As the last bits of 1024: 1024 + code, or 1024 + 16 · code from a high nibble. Both become code − 8.
  __device__ static void widen(uint32_t word, uint32_t (&low)[2], uint32_t (&high)[2]) {
    const uint32_t odd = word >> 8;
    low[0] = bits_of(__hsub2(halves_of((word & 0x000f000fu) | 0x64006400u), both(1032.0f)));
    low[1] = bits_of(__hsub2(halves_of((odd & 0x000f000fu) | 0x64006400u), both(1032.0f)));
    high[0] = bits_of(__hfma2(halves_of((word & 0x00f000f0u) | 0x64006400u), both(0.0625f), both(-72.0f)));
    high[1] = bits_of(__hfma2(halves_of((odd & 0x00f000f0u) | 0x64006400u), both(0.0625f), both(-72.0f)));
  }

  template <bool kBetween, class X>
  __device__ static void multiply_block(const uint8_t* top, const uint8_t* bottom, const X& x, int chunk, float (&sums)[4]) {
    const int t = threadIdx.x % 4;
    uint32_t of_top[1], of_bottom[1];
    load_words<kBetween>(top + 2 + 4 * t, of_top);
    load_words<kBetween>(bottom + 2 + 4 * t, of_bottom);
    OneStep low, high;
    widen(of_top[0], low.top, high.top);
    widen(of_bottom[0], low.bottom, high.bottom);
    const uint4 b = x.at(chunk + t);
    float block[4] = {};
    multiply(block, low, b.x, b.y, Operand{});
    multiply(block, high, b.z, b.w, Operand{});
    const float first = factor(top), second = factor(bottom);
    sums[0] = fmaf(first, block[0], sums[0]);
    sums[1] = fmaf(first, block[1], sums[1]);
    sums[2] = fmaf(second, block[2], sums[2]);
    sums[3] = fmaf(second, block[3], sums[3]);
  }

  template <class X>
  __device__ static void multiply_step(const uint8_t* stage, const X& x, int step, float (&sums)[4]) {
    const uint8_t* const top = stage + threadIdx.x % 32 / 4 * kPitch;
#pragma unroll
    for (int b = 0; b < kBlocks; b += 2) {
      const uint8_t* const even = top + 18 * b;
      multiply_block<true>(even, even + 8 * kPitch, x, (step * kBlocks + b) * 4, sums);
      multiply_block<false>(even + 18, even + 8 * kPitch + 18, x, (step * kBlocks + b + 1) * 4, sums);
    }
  }
};

struct WeightsQ8_0 : BlockedWeights<34, 8> {
  template <class X>
  __device__ static void store(const X& x, int group, const float (&v)[kGroup]) {
    x.store(group, 0, {{v[0], v[1]}, {v[2], v[3]}, {v[4], v[5]}, {v[6], v[7]}});
  }

  template <bool kBetween, class X>
  __device__ static void multiply_block(const uint8_t* at, const X& x, int chunk, float (&sums)[4]) {
    const int t = threadIdx.x % 4;
    uint32_t words[2];
    load_words<kBetween>(at + 2 + 8 * t, words);
    OneStep first{}, second{};
    PlainWeights<int8_t, 1>::widen(words[0], first.top);
    PlainWeights<int8_t, 1>::widen(words[1], second.top);
    const uint4 b = x.at(chunk + t);
    float block[4] = {};
    multiply(block, first, b.x, b.y, Operand{});
    multiply(block, second, b.z, b.w, Operand{});
    const float d = factor(at);
    sums[0] = fmaf(d, block[0], sums[0]);
    sums[1] = fmaf(d, block[1], sums[1]);
  }

  template <class X>
  __device__ static void multiply_step(const uint8_t* stage, const X& x, int step, float (&sums)[4]) {
    const uint8_t* const row = stage + threadIdx.x % 32 / 4 * kPitch;
#pragma unroll
    for (int b = 0; b < kBlocks; b += 2) {
      multiply_block<true>(row + 34 * b, x, (step * kBlocks + b) * 4, sums);
      multiply_block<false>(row + 34 * (b + 1), x, (step * kBlocks + b + 1) * 4, sums);
    }
  }
};

// --- the kernel

struct Product {
  const uint8_t* w;
  const float* scales;  // null: none
  bool scale_each_row;  // else scales[0] is for all
  float* y;
  Bf16* y_bf16;  // where y is BF16
  int rows;
};

struct Arguments {
  Product products[kMostWeights];
  int ends[kMostWeights];  // of the tiles of each; with SwiGLU, all tiles are tiles of gate and of up
  const Bf16* x;
  const void* norm;  // its weight; null: none
  bool norm_is_bf16;
  float eps;
  const Bf16* residual;
  int inner, row_bytes, steps, tiles;
};

// Values of x that a thread keeps between its two passes over them.
constexpr int kept_groups(bool norm) { return norm ? 2 : 8; }

// Which copies come next: tiles blockIdx.x, + gridDim.x, …, each in kPasses passes over K.
template <class Weights, int kPasses>
struct Cursor {
  const Arguments& a;
  int tile, pass = 0, step;
  const uint8_t* rows = nullptr;
  int last = 0;

  __device__ explicit Cursor(const Arguments& args) : a(args), tile(blockIdx.x), step(threadIdx.x / 32) {
    look_up();
    skip();
  }
  __device__ void advance() {
    step += kWarps;
    skip();
  }
  __device__ bool at_end() const { return tile >= a.tiles; }

 private:
  __device__ void skip() {
    while (step >= a.steps && tile < a.tiles) {
      step -= a.steps;
      if (++pass == kPasses) {
        pass = 0;
        tile += gridDim.x;
      }
      look_up();
    }
  }
  __device__ void look_up() {
    if (tile >= a.tiles) return;
    int product = pass, first = tile;
    if constexpr (kPasses == 1) {
      product = tile < a.ends[0] ? 0 : tile < a.ends[1] ? 1 : 2;
      if (product > 0) first -= a.ends[product - 1];
    }
    const int row = first * Weights::kRows;
    rows = a.products[product].w + static_cast<int64_t>(row) * a.row_bytes;
    last = a.products[product].rows - 1 - row;
  }
};

template <bool kBf16>
__device__ inline void load_norm(const void* weight, int group, float (&out)[kGroup]) {
  if constexpr (kBf16) {
    const Pack<Bf16, kGroup> pack = load_pack<kGroup>(static_cast<const Bf16*>(weight) + group * kGroup);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) out[i] = as_float(pack.v[i]);
  } else {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Pack<float, 4> pack = load_pack<4>(static_cast<const float*>(weight) + group * kGroup + 4 * half);
#pragma unroll
      for (int i = 0; i < 4; ++i) out[4 * half + i] = pack.v[i];
    }
  }
}

__device__ inline void unpack_group(const uint4& bits, float (&out)[kGroup]) {
  const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = unpacked(words[i]);
    out[2 * i] = two.x;
    out[2 * i + 1] = two.y;
  }
}

// Puts x, normalised, into shared memory. Returns what the sums must be multiplied by.
template <class Weights, bool kNorm, class X>
__device__ inline float store_x(const Arguments& a, const X& x) {
  constexpr int kKept = kept_groups(kNorm);
  const int groups = a.inner / kGroup, padded = a.steps * (Weights::kStep / kGroup);
  float weights[kNorm ? kKept : 1][kGroup];
  if constexpr (kNorm) {
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const int group = threadIdx.x + i * kThreads;
      if (group >= groups) continue;
      if (a.norm_is_bf16) load_norm<true>(a.norm, group, weights[i]);
      else load_norm<false>(a.norm, group, weights[i]);
    }
  }
  wait_for_earlier();
  uint4 kept[kKept];
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int group = threadIdx.x + i * kThreads;
    if (group < groups) kept[i] = load_written(a.x + group * kGroup);
    else kept[i] = {};
  }
  float inverse = 1.0f, factor = 1.0f;  // of the norm; a power of two
  if constexpr (kNorm || Weights::kScaled) {
    float squares = 0, largest = 0;
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      if (threadIdx.x + i * kThreads >= groups) continue;
      float v[kGroup];
      unpack_group(kept[i], v);
#pragma unroll
      for (int j = 0; j < kGroup; ++j) {
        if constexpr (kNorm) squares = fmaf(v[j], v[j], squares);
        largest = fmaxf(largest, fabsf(kNorm ? v[j] * weights[kNorm ? i : 0][j] : v[j]));
      }
    }
    __shared__ float of_warps[2][kWarps];
    squares = warp_sum(squares);
    largest = warp_max(largest);
    if (threadIdx.x % 32 == 0) {
      of_warps[0][threadIdx.x / 32] = squares;
      of_warps[1][threadIdx.x / 32] = largest;
    }
    __syncthreads();
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) {
      sum += of_warps[0][w];
      largest = fmaxf(largest, of_warps[1][w]);
    }
    if constexpr (kNorm) inverse = rsqrtf(sum / static_cast<float>(a.inner) + a.eps);
    if constexpr (Weights::kScaled) {  // the largest value becomes 2¹³ … 2¹⁴; F16 then holds all that matters of the smaller ones
      const int exponent = __float_as_int(largest * inverse) >> 23;
      if (exponent > 0 && exponent < 255) factor = __int_as_float(min(267 - exponent, 254) << 23);
    }
  }
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int group = threadIdx.x + i * kThreads;
    if (group >= padded) continue;  // zeros where x has ended
    float v[kGroup];
    unpack_group(kept[i], v);
    if constexpr (kNorm) {
#pragma unroll
      for (int j = 0; j < kGroup; ++j) v[j] = group < groups ? v[j] * inverse * weights[i][j] : 0.0f;
    }
    if constexpr (Weights::kScaled) {
#pragma unroll
      for (int j = 0; j < kGroup; ++j) v[j] *= factor;
    }
    Weights::store(x, group, v);
  }
  __syncthreads();
  return Weights::kScaled ? 1.0f / factor : 1.0f;
}

template <class Weights, bool kNorm, bool kSwiglu>
__global__ void __launch_bounds__(kThreads, 2) row_products_kernel(const __grid_constant__ Arguments a) {
  constexpr int kPasses = kSwiglu ? 2 : 1;
  constexpr int kStages = kRingBytes / (kWarps * Weights::kStageBytes) < 2 ? 2 : kRingBytes / (kWarps * Weights::kStageBytes);
  extern __shared__ __align__(128) uint8_t memory[];  // a ring for each warp, then x
  __shared__ float partial[2][kPasses][kWarps][Weights::kRows];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint8_t* const ring = memory + warp * kStages * Weights::kStageBytes;
  const uint32_t ring_address = static_cast<uint32_t>(__cvta_generic_to_shared(ring));
  const RowOfX<typename Weights::Operand, kNorm> x{reinterpret_cast<uint4*>(memory + kWarps * kStages * Weights::kStageBytes)};

  let_next_begin();
  Cursor<Weights, kPasses> ask(a);
  const auto fetch = [&](int stage) {
    if (!ask.at_end()) {
      Weights::fetch(ring_address + stage * Weights::kStageBytes, ask.rows, ask.last, a.row_bytes, ask.step);
      ask.advance();
    }
    end_of_copies();
  };
#pragma unroll 1
  for (int stage = 0; stage < kStages; ++stage) fetch(stage);
  const float factor = store_x<Weights, kNorm>(a, x);

  int stage = 0, step = warp, buffer = 0, finisher = 0;
  for (int tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    // One warp finishes the tile. What it needs for that is on its way while the tile is multiplied.
    int product = 0, row = tile * Weights::kRows + lane;
    if constexpr (kPasses == 1) {
      product = tile < a.ends[0] ? 0 : tile < a.ends[1] ? 1 : 2;
      if (product > 0) row -= a.ends[product - 1] * Weights::kRows;
    }
    const bool finishes = warp == finisher && lane < Weights::kRows && row < a.products[product].rows;
    float scales[kPasses], residual = 0;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const Product& p = a.products[product + pass];
      scales[pass] = finishes && p.scales ? p.scales[p.scale_each_row ? row : 0] : 1.0f;
    }
    if (!kSwiglu && finishes && a.residual)
      residual = __bfloat162float(__ushort_as_bfloat16(load_written_half(a.residual + row)));

#pragma unroll 1
    for (int pass = 0; pass < kPasses; ++pass) {
      float sums[4] = {};
#pragma unroll 1
      for (; step < a.steps; step += kWarps) {
        wait_for_copies<kStages - 1>();
        if constexpr (Weights::kShared) __syncwarp();
        Weights::multiply_step(ring + stage * Weights::kStageBytes, x, step, sums);
        if constexpr (Weights::kShared) __syncwarp();
        fetch(stage);
        stage = stage + 1 == kStages ? 0 : stage + 1;
      }
      step -= a.steps;
      if (lane % 4 == 0) {
        partial[buffer][pass][warp][lane / 4] = kNorm ? sums[0] + sums[1] : sums[0];
        if constexpr (Weights::kRows == 16) partial[buffer][pass][warp][lane / 4 + 8] = kNorm ? sums[2] + sums[3] : sums[2];
      }
    }
    __syncthreads();
    if (finishes) {
      float totals[kPasses];
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        float total = 0;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) total += partial[buffer][pass][w][lane];
        totals[pass] = total * factor * scales[pass];
      }
      float value = totals[0] + residual;
      if constexpr (kSwiglu) value = silu(totals[0]) * totals[1];
      const Product& to = a.products[product];
      if (to.y_bf16) to.y_bf16[row] = from_float<Bf16>(value);
      else to.y[row] = value;
    }
    finisher = finisher + 1 == kWarps ? 0 : finisher + 1;
    buffer ^= 1;  // the next tile's sums are written while these are still read
  }
}

int current(cudaDeviceAttr what) {
  int device = 0, value = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&value, what, device);
  return value;
}

template <class Weights>
constexpr size_t ring_bytes() {
  constexpr int kStages = kRingBytes / (kWarps * Weights::kStageBytes);
  return static_cast<size_t>(kWarps) * (kStages < 2 ? 2 : kStages) * Weights::kStageBytes;
}

template <class Weights>
int64_t tiles_of(const RowProductsArgs& args) {
  if (args.result == RowResult::Swiglu) return ceil_div(args.weights[0].dim(0), Weights::kRows);
  int64_t tiles = 0;
  for (const Tensor& w : args.weights) tiles += ceil_div(w.dim(0), Weights::kRows);
  return tiles;
}

// Rows that the busiest multiprocessor reads.
template <class Weights>
int64_t most_rows(const RowProductsArgs& args) {
  return ceil_div(tiles_of<Weights>(args), current(cudaDevAttrMultiProcessorCount)) * Weights::kRows;
}

struct Prepared {
  Arguments a;
  cudaStream_t stream;
};

template <class Weights, bool kNorm, bool kSwiglu>
void launch_for(Prepared& p, const RowProductsArgs& args) {
  Arguments& a = p.a;
  a.steps = static_cast<int>(ceil_div(a.inner, Weights::kStep));
  int64_t tiles = 0;
  for (size_t i = 0; i < kMostWeights; ++i) {
    if (i < args.weights.size()) tiles += ceil_div(args.weights[i].dim(0), Weights::kRows);
    a.ends[i] = static_cast<int>(tiles);
  }
  a.tiles = static_cast<int>(tiles_of<Weights>(args));
  const size_t x_bytes = static_cast<size_t>(a.steps) * Weights::kStep * sizeof(typename Weights::Operand) * (kNorm ? 2 : 1);
  launch_early(row_products_kernel<Weights, kNorm, kSwiglu>,
               {.grid = dim3(static_cast<unsigned>(std::min(a.tiles, current(cudaDevAttrMultiProcessorCount)))),
                .threads = kThreads,
                .shared_bytes = ring_bytes<Weights>() + x_bytes,
                .stream = p.stream},
               a);
}

template <class Weights>
void launch(Prepared& p, const RowProductsArgs& args) {
  if (args.result == RowResult::Swiglu) launch_for<Weights, true, true>(p, args);
  else if (args.norm) launch_for<Weights, true, false>(p, args);
  else launch_for<Weights, false, false>(p, args);
}

// With tiles of 16 rows unless tiles of 8 divide the work better.
template <class S>
void launch_plain(Prepared& p, const RowProductsArgs& args) {
  if (most_rows<PlainWeights<S, 1>>(args) < most_rows<PlainWeights<S, 2>>(args)) launch<PlainWeights<S, 1>>(p, args);
  else launch<PlainWeights<S, 2>>(p, args);
}

// K must be a multiple of this; 0: no kernel for such weights.
int64_t multiple_of(DType dtype) {
  switch (dtype) {
    case DType::BF16:
    case DType::F16: return 8;
    case DType::I8:
    case DType::F8_E4M3: return 16;
    case DType::Q4_0:
    case DType::Q8_0: return 256;
    default: return 0;
  }
}

bool is_row(const Tensor& t) { return t.dim(1) == 1 || t.stride(1) == 1; }

// One op after the other.
void in_steps(const RowProductsArgs& args) {
  const Tensor& x = args.x;
  Tensor n = x;
  if (args.norm) {
    n = Tensor::like(x, x.shape());
    rms_norm({x, *args.norm, n, args.eps});
  }
  const auto product = [&](const Tensor& w) {
    const Tensor y = Tensor::like(x, {1, w.dim(0)});
    linear({n, w, nullptr, y});
    return y;
  };
  switch (args.result) {
    case RowResult::Plain:
      for (size_t i = 0; i < args.weights.size(); ++i) {
        if (args.places[i].dtype() == x.dtype()) linear({n, args.weights[i], nullptr, args.places[i]});
        else copy({product(args.weights[i]), args.places[i]});
      }
      return;
    case RowResult::Added: return binary({Binary::Add, *args.residual, product(args.weights[0]), args.places[0]});
    case RowResult::Swiglu: return swiglu({product(args.weights[0]), product(args.weights[1]), args.places[0]});
  }
}

}  // namespace

bool row_products_fit(const RowProductsArgs& args) {
  const Tensor& x = args.x;
  const DType dtype = args.weights[0].dtype();
  const int64_t inner = x.dim(1), multiple = multiple_of(dtype);
  if (x.dtype() != DType::BF16 || !is_row(x) || !is_aligned(x.raw(), 16) || multiple == 0 || inner % multiple != 0) return false;
  if (args.result == RowResult::Swiglu && !args.norm) return false;
  if (inner > int64_t{kept_groups(args.norm != nullptr)} * kThreads * kGroup) return false;
  const int64_t x_bytes = (inner + 256) * (args.norm ? 4 : 2), most = current(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  if (x_bytes + static_cast<int64_t>(ring_bytes<WeightsQ4_0>()) + (8 << 10) > most) return false;
  for (const Tensor& w : args.weights) {
    const Tensor& scales = w.scales();
    if (w.dtype() != dtype || !w.is_contiguous() || !is_aligned(w.raw(), 16) || w.dim(0) > INT_MAX / 2) return false;
    if (scales.defined() && (!scales.is_contiguous() || is_block_type(dtype))) return false;
  }
  if (const Tensor* n = args.norm)  // it is read early, so it must not be converted first
    if ((n->dtype() != DType::BF16 && n->dtype() != DType::F32) || !n->is_contiguous() || !is_aligned(n->raw(), 16)) return false;
  for (const Tensor& y : args.places)
    if (!is_row(y) || (y.dtype() != DType::BF16 && y.dtype() != DType::F32)) return false;
  return !args.residual || (args.residual->dtype() == DType::BF16 && is_row(*args.residual));
}

void row_products(const RowProductsArgs& args) {
  if (!row_products_fit(args)) return in_steps(args);
  CudaStream& stream = stream_for(args.x);
  Prepared p{.a = {}, .stream = stream.handle()};
  Arguments& a = p.a;
  OpCost cost;
  for (size_t i = 0; i < args.weights.size(); ++i) {
    const Tensor& w = args.weights[i];
    Product& to = a.products[i];
    to.w = w.data<uint8_t>();
    to.rows = static_cast<int>(w.dim(0));
    if (w.scales().defined()) {
      to.scales = w.scales().data<float>();
      to.scale_each_row = w.scales().numel() > 1;
    }
    if (i < args.places.size()) {
      const Tensor& y = args.places[i];
      if (y.dtype() == DType::BF16) to.y_bf16 = y.data<Bf16>();
      else to.y = y.data<float>();
    }
    cost.flop += 2.0 * static_cast<double>(w.numel());
    cost.bytes += traffic({&w});
  }
  const Tensor& first = args.weights[0];
  a.inner = static_cast<int>(first.dim(1));
  a.row_bytes = static_cast<int>(first.bytes() / first.dim(0));
  a.x = args.x.data<Bf16>();
  if (args.norm) {
    a.norm = args.norm->raw();
    a.norm_is_bf16 = args.norm->dtype() == DType::BF16;
    a.eps = args.eps;
  }
  if (args.residual) a.residual = args.residual->data<Bf16>();

  switch (first.dtype()) {
    case DType::BF16: launch_plain<Bf16>(p, args); break;
    case DType::F16: launch_plain<__half>(p, args); break;
    case DType::I8: launch_plain<int8_t>(p, args); break;
    case DType::F8_E4M3: launch_plain<__nv_fp8_e4m3>(p, args); break;
    case DType::Q4_0: launch<WeightsQ4_0>(p, args); break;
    case DType::Q8_0: launch<WeightsQ8_0>(p, args); break;
    default: refuse_dtype("row_products", first.dtype());
  }
  stream.enqueued("row products", cost);
}

}  // namespace flux2::cuda
