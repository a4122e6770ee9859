#pragma once

#include "backend/cuda/kernels/eight_bit_plan.cuh"
#include "backend/cuda/kernels/hopper_e4m3.cuh"

// Queries, keys and values in 8 bits, in tiles swizzled as in shared memory. One block writes one tile.
namespace flux2::cuda::attention8 {

constexpr int kWriters = 256;                  // threads of a block
constexpr int kOperandBytes = 2 * kTileBytes;  // of shared memory

// Where 16 bytes lie in a matrix whose rows of kRowBytes are swizzled.
template <int kRowBytes>
__host__ __device__ inline int swizzled(int row, int chunk) {
  static_assert(kRowBytes == 32 || kRowBytes == 64 || kRowBytes == 128);
  constexpr int kChunks = kRowBytes / 16;
  return row * kRowBytes + (chunk ^ (row * kRowBytes / 128 % kChunks)) * 16;
}

// The key whose value is byte i of 16 in a row of transposed values. A thread holds of S two neighbouring columns out of every
// eight, but gives the next product four neighbouring columns of P, so those four are really two and two.
__host__ __device__ inline int key_of_byte(int i) { return i / 2 % 2 * 8 + i / 4 * 2 + i % 2; }

__device__ inline float largest_of(const uint4& pack) {
  uint32_t m =
      __vmaxu2(__vmaxu2(pack.x & 0x7fff7fffu, pack.y & 0x7fff7fffu), __vmaxu2(pack.z & 0x7fff7fffu, pack.w & 0x7fff7fffu));
  return __uint_as_float(max(m << 16, m & 0xffff0000u));
}

// A NaN stays one, so that the scale, and with it the whole result, shows it.
__device__ inline float at_least_smallest(float x) { return x < kSmallest ? kSmallest : x; }

__device__ inline uint32_t e4m3_of_four(float a, float b, float c, float d) {
  uint32_t out;
  asm("{\n.reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n}"
      : "=r"(out)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return out;
}

__device__ inline float2 two(uint32_t pair) { return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)}; }

__device__ inline uint2 e4m3_of_eight(const uint4& pack, float inverse) {
  const float2 a = two(pack.x), b = two(pack.y), c = two(pack.z), d = two(pack.w);
  return {e4m3_of_four(a.x * inverse, a.y * inverse, b.x * inverse, b.y * inverse),
          e4m3_of_four(c.x * inverse, c.y * inverse, d.x * inverse, d.y * inverse)};
}

// Rows first … of one head, 16 threads a row, 16 rows a pass.
template <int kPasses>
__device__ inline void read_rows(uint4 (&packs)[kPasses], const Source& source, int batch, int head, int first, int rows) {
  const int row = threadIdx.x / 16, column = threadIdx.x % 16 * 8;
  const __nv_bfloat16* const data = source.data + batch * source.stride.batch + head * source.stride.head + column;
#pragma unroll
  for (int i = 0; i < kPasses; ++i) {
    const int at = first + row + 16 * i;
    packs[i] = at < rows ? *reinterpret_cast<const uint4*>(data + at * source.stride.token) : uint4{0, 0, 0, 0};
  }
}

// Of what all threads of the block give.
__device__ inline float block_largest(float value) {
  __shared__ float partial[kWriters / 32];
  const uint32_t warp =
      __reduce_max_sync(0xffffffffu, __float_as_uint(value));  // not negative: ordered like its bits, NaN above all
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = __uint_as_float(warp);
  __syncthreads();
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kWriters / 32; ++i) largest = max(largest, __float_as_uint(partial[i]));
  return __uint_as_float(largest);
}

__device__ inline void write_queries(const Source& source, const Plan& plan, const Workspace& w, float factor, int unit) {
  const int tile = unit % plan.query_tiles, head = unit / plan.query_tiles;  // of all batches
  constexpr int kPasses = kTileRows / 16;
  uint4 packs[kPasses];
  read_rows(packs, source, head / plan.heads, head % plan.heads, tile * kTileRows, plan.queries);
  uint8_t* const out = w.q + static_cast<size_t>(unit) * kGroups * kQueryBytes;
  const int column = threadIdx.x % 16;
#pragma unroll
  for (int i = 0; i < kPasses; ++i) {
    uint32_t bits = __float_as_uint(largest_of(packs[i]));
#pragma unroll
    for (int step = 8; step > 0; step /= 2) bits = max(bits, __shfl_xor_sync(0xffffffffu, bits, step));
    const float largest = at_least_smallest(__uint_as_float(bits));
    const int row = threadIdx.x / 16 + 16 * i;
    if (column == 0) w.q_scales[static_cast<size_t>(unit) * kTileRows + row] = largest * (factor / kLargest);
    *reinterpret_cast<uint2*>(out + swizzled<128>(row, column / 2) + column % 2 * 8) =
        e4m3_of_eight(packs[i], kLargest / largest);
  }
}

__device__ inline void write_keys(const Source& source, const Plan& plan, const Workspace& w, int unit) {
  const int tile = unit % plan.key_tiles, head = unit / plan.key_tiles, heads = plan.heads / plan.shared_by;
  constexpr int kPasses = kKeys / 16;
  uint4 packs[kPasses];
  read_rows(packs, source, head / heads, head % heads, tile * kKeys, plan.keys);
  float largest = 0;
#pragma unroll
  for (int i = 0; i < kPasses; ++i)
    largest = __uint_as_float(max(__float_as_uint(largest), __float_as_uint(largest_of(packs[i]))));
  largest = at_least_smallest(block_largest(largest));
  const float inverse = kLargest / largest;
  uint8_t* const out = w.k + static_cast<size_t>(unit) * kKeyStride;
  if (threadIdx.x == 0) reinterpret_cast<TileScales*>(out + kTileBytes)->key = largest / kLargest;
  const int column = threadIdx.x % 16;
#pragma unroll
  for (int i = 0; i < kPasses; ++i)
    *reinterpret_cast<uint2*>(out + swizzled<128>(static_cast<int>(threadIdx.x) / 16 + 16 * i, column / 2) + column % 2 * 8) =
        e4m3_of_eight(packs[i], inverse);
}

// Rows i of four words become columns.
__device__ inline uint4 transposed(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const uint32_t ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);
  const uint32_t cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
  return {__byte_perm(ab_low, cd_low, 0x5410), __byte_perm(ab_low, cd_low, 0x7632), __byte_perm(ab_high, cd_high, 0x5410),
          __byte_perm(ab_high, cd_high, 0x7632)};
}

__device__ inline void write_values(const Source& source, const Plan& plan, const Workspace& w, uint8_t* shared, int unit) {
  const int tile = unit % plan.key_tiles, head = unit / plan.key_tiles, heads = plan.heads / plan.shared_by;
  constexpr int kPasses = kKeys / 16;
  uint4 packs[kPasses];
  read_rows(packs, source, head / heads, head % heads, tile * kKeys, plan.keys);
  float largest = 0;
#pragma unroll
  for (int i = 0; i < kPasses; ++i)
    largest = __uint_as_float(max(__float_as_uint(largest), __float_as_uint(largest_of(packs[i]))));
  largest = at_least_smallest(block_largest(largest));
  const float inverse = kLargest / largest, scale = largest / kLargest;
  if (threadIdx.x == 0) {
    auto* const scales = reinterpret_cast<TileScales*>(w.k + static_cast<size_t>(unit) * kKeyStride + kTileBytes);
    scales->value_log2 = log2f(scale);
    scales->inverse_value = inverse;
  }
  uint8_t *const rows = shared, *const columns = shared + kTileBytes;
#pragma unroll
  for (int i = 0; i < kPasses; ++i)
    *reinterpret_cast<uint2*>(rows + (threadIdx.x / 16 + 16 * i) * kWidth + threadIdx.x % 16 * 8) =
        e4m3_of_eight(packs[i], inverse);
  __syncthreads();
  const int lane = threadIdx.x % 32;  // takes four channels
  for (int sixteen = threadIdx.x / 32; sixteen < kKeys / 16; sixteen += kWriters / 32) {
    uint32_t chunks[4][4];  // [channel][four bytes]
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto word = [&](int byte) {
        return *reinterpret_cast<const uint32_t*>(rows + (sixteen * 16 + key_of_byte(byte)) * kWidth + lane * 4);
      };
      const uint4 four = transposed(word(4 * i), word(4 * i + 1), word(4 * i + 2), word(4 * i + 3));
      chunks[0][i] = four.x, chunks[1][i] = four.y, chunks[2][i] = four.z, chunks[3][i] = four.w;
    }
    const int slab = sixteen * 16 / kSlab, chunk = sixteen % (kSlab / 16);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      *reinterpret_cast<uint4*>(columns + slab * kSlab * kWidth + swizzled<kSlab>(lane * 4 + i, chunk)) =
          uint4{chunks[i][0], chunks[i][1], chunks[i][2], chunks[i][3]};
  }
  hopper::publish_shared();
  __syncthreads();
  if (threadIdx.x == 0) {
    hopper::store_bytes(w.v + static_cast<size_t>(unit) * kTileBytes, hopper::shared_address(columns), kTileBytes);
    hopper::stores_commit();
    hopper::stores_have_read();
  }
}

__global__ void __launch_bounds__(kWriters, 3)
    operands_kernel(const Source q, const Source k, const Source v, const __grid_constant__ Plan plan,
                    const __grid_constant__ Workspace w, float factor) {
  extern __shared__ __align__(128) uint8_t shared[];
  const int key_units = plan.batches * plan.heads / plan.shared_by * plan.key_tiles;
  const int unit = blockIdx.x;
  if (unit == 0)
    for (int i = threadIdx.x; i < plan.divided_tiles * kGroups; i += kWriters) w.arrived[i] = 0;
  if (unit < key_units) write_values(v, plan, w, shared, unit);
  else if (unit < 2 * key_units) write_keys(k, plan, w, unit - key_units);
  else write_queries(q, plan, w, factor, unit - 2 * key_units);
}

inline unsigned operand_blocks(const Plan& p) {
  return static_cast<unsigned>(2 * p.batches * p.heads / p.shared_by * p.key_tiles + p.batches * p.heads * p.query_tiles);
}

}  // namespace flux2::cuda::attention8
