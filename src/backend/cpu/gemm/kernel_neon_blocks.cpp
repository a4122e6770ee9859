#include "backend/cpu/gemm/kernel_neon.h"
#include "backend/cpu/gemm/neon_int8.h"

// 8 × 12 with SMMLA and a scale for each 32 k, as two halves of 8 × 6: twelve 2×2 blocks of integers in v8–v19, of f32 sums
// in v20–v31. What has to be done once in 32 k is the price of such scales; here it is one multiply-add a register.
//
// The integers start from the bits of M = 1.5 · 2^23. While their sum stays within ±2^22 the register, read as f32, is
// M + sum exactly. They start anew not for each block but for a group of eight, the most whose sum stays in range. With
// block sums S_i, their running sums P_i and scales s_i,
//   Σ s_i · S_i = Σ (s_i − s_{i+1}) · (M + P_i) − s_1 · M,   where s past the group is 0,
// so the panel holds differences of scales, and the term with s_1 opens a group. M in the sums costs precision: each
// multiply-add rounds to about half a step of the integers, where rounding the activations to int8 already moved the sum of
// a block by some 60 steps (Q8_0) or 6 (Q4_0). Subtracting M from every P_i instead is exact and ran at 353 GOP/s, not 432.

namespace flux2::gemm::neon_blocks {

namespace {

constexpr int kMr = 8, kNr = 12, kHalf = 6, kBlock = 32, kGroup = 8, kKr = kGroup * kBlock;
constexpr int kIntegerBytes = kHalf * kBlock, kScaleBytes = 3 * 16;
constexpr int kGroupBytes = kScaleBytes + kGroup * (kIntegerBytes + kScaleBytes);
constexpr uint32_t kMagic = 0x4b400000;  // 1.5 · 2^23
static_assert(kKr * 127 * 128 < 1 << 22);

// Six scales as three registers {w0 w1 w0 w1}.
int8_t* put_scales(const float* scales, int8_t* out) {
  for (int r = 0; r < kHalf; r += 2, out += 16) {
    const float32x2_t pair = vld1_f32(scales + r);
    vst1q_f32(reinterpret_cast<float*>(out), vcombine_f32(pair, pair));
  }
  return out;
}

// half panel[group]{−first scales, [block]{integers[4 steps of 8][row][8], differences of scales}}
int8_t* pack_half(int64_t k, const int8_t* const* rows, const float* const* scales, int8_t* out) {
  constexpr int8_t kNothing[kBlock] = {};
  const int64_t blocks = k / kBlock;
  for (int64_t first = 0; first < blocks; first += kGroup) {
    float values[kGroup + 1][kHalf];
    for (int r = 0; r < kHalf; ++r)
      for (int i = 0; i <= kGroup; ++i) values[i][r] = i < kGroup && first + i < blocks ? scales[r][first + i] : 0.0f;
    float step[kHalf];
    for (int r = 0; r < kHalf; ++r) step[r] = -values[0][r];
    out = put_scales(step, out);
    for (int i = 0; i < kGroup; ++i) {
      const int8_t* from[kHalf];
      for (int r = 0; r < kHalf; ++r) from[r] = first + i < blocks ? rows[r] + (first + i) * kBlock : kNothing;
      neon_int8::pack<kHalf>(kBlock, from, out);
      for (int r = 0; r < kHalf; ++r) step[r] = values[i][r] - values[i + 1][r];
      out = put_scales(step, out + kIntegerBytes);
    }
  }
  return out;
}

// Both halves, one behind the other.
void pack_b(int64_t k, const int8_t* const* rows, const float* const* scales, void* panel) {
  pack_half(k, rows + kHalf, scales + kHalf, pack_half(k, rows, scales, static_cast<int8_t*>(panel)));
}

// As for products of int8, filled up with zeros to whole groups.
void pack_a(int64_t k, const int8_t* const* rows, void* panel) {
  neon_int8::pack<kMr>(k, rows, panel);
  auto* end = static_cast<int8_t*>(panel) + kMr * k;
  for (int64_t i = k; i % kKr != 0; i += kBlock)
    for (int j = 0; j < kMr * kBlock; j += 16, end += 16) vst1q_s8(end, vdupq_n_s8(0));
}

// From 2×2 blocks, three times four of them in each half, to rows.
void to_rows(float* tile) {
  float32x4_t block[2][kMr / 2][3];
  for (int i = 0; i < kMr * kNr / 4; ++i) block[i / 12][i % 12 / 3][i % 3] = vld1q_f32(tile + 4 * i);
  for (int pair = 0; pair < kMr / 2; ++pair, tile += 2 * kNr)
    for (int half = 0; half < 2; ++half)
      for (int j = 0; j < 3; ++j) {
        vst1_f32(tile + kHalf * half + 2 * j, vget_low_f32(block[half][pair][j]));
        vst1_f32(tile + kNr + kHalf * half + 2 * j, vget_high_f32(block[half][pair][j]));
      }
}

// clang-format off
#define FLUX2_COLUMN(b, c0, c1, c2, c3)      \
  "smmla v" #c0 ".4s, v0.16b, v" #b ".16b\n" \
  "smmla v" #c1 ".4s, v1.16b, v" #b ".16b\n" \
  "smmla v" #c2 ".4s, v2.16b, v" #b ".16b\n" \
  "smmla v" #c3 ".4s, v3.16b, v" #b ".16b\n"

#define FLUX2_STEP(a0, a1, b0, b1)  \
  "ldp q0, q1, [%[a], #" #a0 "]\n"  \
  "ldp q4, q5, [%[b], #" #b0 "]\n"  \
  "ldp q2, q3, [%[a], #" #a1 "]\n"  \
  "ldr q6, [%[b], #" #b1 "]\n"      \
  FLUX2_COLUMN(4, 8, 11, 14, 17)    \
  FLUX2_COLUMN(5, 9, 12, 15, 18)    \
  FLUX2_COLUMN(6, 10, 13, 16, 19)

#define FLUX2_SCALE(s, c0, c1, c2, c3, f0, f1, f2, f3) \
  "fmla v" #f0 ".4s, v" #c0 ".4s, v" #s ".4s\n"         \
  "fmla v" #f1 ".4s, v" #c1 ".4s, v" #s ".4s\n"         \
  "fmla v" #f2 ".4s, v" #c2 ".4s, v" #s ".4s\n"         \
  "fmla v" #f3 ".4s, v" #c3 ".4s, v" #s ".4s\n"

#define FLUX2_START(c0, c1, c2)      \
  "mov v" #c0 ".16b, v7.16b\n"       \
  "mov v" #c1 ".16b, v7.16b\n"       \
  "mov v" #c2 ".16b, v7.16b\n"

#define FLUX2_TILE(op)                                   \
  op " {v20.4s, v21.4s, v22.4s, v23.4s}, [%[t]], #64\n"  \
  op " {v24.4s, v25.4s, v26.4s, v27.4s}, [%[t]], #64\n"  \
  op " {v28.4s, v29.4s, v30.4s, v31.4s}, [%[t]], #64\n"

#define FLUX2_REGISTERS                                                                                             \
  "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", \
      "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31"

// tile[8, 6] of one half, in 2×2 blocks.
void run_half(int64_t groups, const void* a, const void* b, float* t) {
  int64_t blocks;
  asm volatile(
      "dup v7.4s, %w[magic]\n"
      FLUX2_TILE("ld1")
      "sub %[t], %[t], #192\n"
      "cbz %[groups], 3f\n"
      "1:\n"  // a group
      "mov %[blocks], %[most]\n"
      "ldp q4, q5, [%[b]]\n"
      "ldr q6, [%[b], #32]\n"
      FLUX2_START(8, 9, 10) FLUX2_START(11, 12, 13) FLUX2_START(14, 15, 16) FLUX2_START(17, 18, 19)
      "add %[b], %[b], #48\n"
      FLUX2_SCALE(4, 7, 7, 7, 7, 20, 23, 26, 29)
      FLUX2_SCALE(5, 7, 7, 7, 7, 21, 24, 27, 30)
      FLUX2_SCALE(6, 7, 7, 7, 7, 22, 25, 28, 31)
      "2:\n"  // a block of 32
      FLUX2_STEP(0, 32, 0, 32)
      FLUX2_STEP(64, 96, 48, 80)
      FLUX2_STEP(128, 160, 96, 128)
      FLUX2_STEP(192, 224, 144, 176)
      "ldp q4, q5, [%[b], #192]\n"
      "ldr q6, [%[b], #224]\n"
      "add %[a], %[a], #256\n"
      "add %[b], %[b], #240\n"
      "subs %[blocks], %[blocks], #1\n"
      FLUX2_SCALE(4, 8, 11, 14, 17, 20, 23, 26, 29)
      FLUX2_SCALE(5, 9, 12, 15, 18, 21, 24, 27, 30)
      FLUX2_SCALE(6, 10, 13, 16, 19, 22, 25, 28, 31)
      "b.ne 2b\n"
      "subs %[groups], %[groups], #1\n"
      "b.ne 1b\n"
      "3:\n"
      FLUX2_TILE("st1")
      : [t] "+r"(t), [a] "+r"(a), [b] "+r"(b), [groups] "+r"(groups), [blocks] "=&r"(blocks)
      : [magic] "r"(kMagic), [most] "I"(kGroup)
      : "memory", "cc", FLUX2_REGISTERS);
}
// clang-format on

void run(int64_t k, const void* a, const void* b, float* tile, Pass pass) {
  if (pass.first)
    for (int i = 0; i < kMr * kNr; i += 4) vst1q_f32(tile + i, vdupq_n_f32(0.0f));
  const int64_t groups = k / kKr;
  run_half(groups, a, b, tile);
  run_half(groups, a, static_cast<const int8_t*>(b) + groups * kGroupBytes, tile + kMr * kHalf);
  if (pass.last) to_rows(tile);
}

}  // namespace

const BlockKernel kKernel = {{.name = "neon int8 blocks 8x12",
                              .mr = kMr,
                              .nr = kNr,
                              .kr = kKr,
                              .a_step = kKr * kMr,
                              .b_step = 2 * kGroupBytes,
                              .run = run,
                              .instruction = "SMMLA",
                              .ceiling = neon_int8::ceiling},
                             pack_a,
                             pack_b};

}  // namespace flux2::gemm::neon_blocks
