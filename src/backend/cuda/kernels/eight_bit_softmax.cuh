#pragma once

#include "backend/cuda/kernels/eight_bit_operands.cuh"

// The exponentials between the two products of an attention in e4m3. A thread holds two rows of scores, in registers, in the
// order of the tensor cores (hopper_e4m3.cuh).
namespace flux2::cuda::attention8 {

// Of 8 exponentials, how many the multipliers compute. The special function units compute the others meanwhile.
constexpr int kPolynomial = 2;
// A row's sums are rescaled when its largest exponential grows by more than this power of two. It is taken from the range of
// e4m3.
constexpr int kHeadroom = 2;

__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The same by multiplications, to 0.2 %: a twentieth of the distance of neighbours in e4m3. x at most 2^6.
__device__ inline float power_by_polynomial(float x) {
  x = fmaxf(x, -120.0f);
  const float shifted = x + 12582912.0f;  // its lowest bits are the nearest integer
  const float f = x - (shifted - 12582912.0f);
  const float p = fmaf(fmaf(0.23842467f, f, 0.70344076f), f, 1.00044288f);
  return __int_as_float(__float_as_int(p) + (__float_as_int(shifted) << 23));
}

// Values that the tensor cores have written, or still read, become what the program may use.
template <int kCount>
__device__ inline void settle(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int kCount>
__device__ inline void settle(uint32_t (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(d[i])::"memory");
}

// Added to exponents: the largest exponential becomes the largest e4m3 below the headroom.
constexpr float kOffset = 8.807354922f - static_cast<float>(kHeadroom);

// What a thread knows of its two rows.
struct Rows {
  float query_scale[2];
  float largest[2];          // exponents; what the sums are relative to
  float total[2];            // of this thread's columns
  float shrink[2];           // what the sums of earlier tiles must be multiplied by
  float scale[2], shift[2];  // of this tile: a score's exponent is scale · score + shift
  float tile_total[2][2];
};

// What the scores of a tile have to do with those of earlier tiles.
__device__ inline void compare(const float (&s)[kKeys / 2], Rows& rows, const TileScales& tile) {
  float top[2][2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    top[r][0] = fmaxf(s[2 * r], s[2 * r + 1]);
    top[r][1] = fmaxf(s[4 + 2 * r], s[4 + 2 * r + 1]);
  }
#pragma unroll
  for (int j = 2; j < kKeys / 8; ++j)
#pragma unroll
    for (int r = 0; r < 2; ++r) top[r][j % 2] = fmaxf(top[r][j % 2], fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float t = fmaxf(top[r][0], top[r][1]);
    t = fmaxf(t, __shfl_xor_sync(0xffffffffu, t, 1));
    t = fmaxf(t, __shfl_xor_sync(0xffffffffu, t, 2));
    rows.scale[r] = rows.query_scale[r] * tile.key;
    t = fmaf(t, rows.scale[r], tile.value_log2);
    const float before = rows.largest[r];
    rows.largest[r] = t > before + static_cast<float>(kHeadroom) ? t : before;
    rows.shrink[r] = power_of_two(before - rows.largest[r]);
    rows.shift[r] = tile.value_log2 - rows.largest[r] + kOffset;
    rows.tile_total[r][0] = rows.tile_total[r][1] = 0;
  }
}

// Scores of the columns from 8 · kFrom up to 8 · kTo become exponentials.
template <int kFrom, int kTo>
__device__ inline void exponentiate(float (&s)[kKeys / 2], Rows& rows) {
#pragma unroll
  for (int j = kFrom; j < kTo; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float x = fmaf(s[4 * j + i], rows.scale[i / 2], rows.shift[i / 2]);
      constexpr int kOrder[8] = {0, 4, 2, 6, 1, 5, 3, 7};
      s[4 * j + i] = kOrder[(4 * j + i) % 8] < kPolynomial ? power_by_polynomial(x) : power_of_two(x);
      rows.tile_total[i / 2][j % 2] += s[4 * j + i];
    }
}

__device__ inline void add_totals(Rows& rows, const TileScales& tile) {
#pragma unroll
  for (int r = 0; r < 2; ++r)
    rows.total[r] = fmaf(rows.tile_total[r][0] + rows.tile_total[r][1], tile.inverse_value, rows.total[r] * rows.shrink[r]);
}

__device__ inline void round_to_e4m3(const float (&s)[kKeys / 2], uint32_t (&p)[kKeys / 8]) {
#pragma unroll
  for (int i = 0; i < kKeys / 16; ++i)
#pragma unroll
    for (int r = 0; r < 2; ++r)
      p[2 * i + r] = e4m3_of_four(s[8 * i + 2 * r], s[8 * i + 2 * r + 1], s[8 * i + 4 + 2 * r], s[8 * i + 4 + 2 * r + 1]);
}

__device__ inline TileScales scales_at(uint32_t address) {
  TileScales t;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(t.key), "=f"(t.value_log2), "=f"(t.inverse_value), "=f"(t.unused)
               : "r"(address)
               : "memory");
  return t;
}

}  // namespace flux2::cuda::attention8
