#include "backend/cpu/gemm/kernel_neon.h"
#include "backend/cpu/gemm/neon_int8.h"

// 8 × 12 with SMMLA, which multiplies a 2×8 by an 8×2 block of int8 into a 2×2 block of int32: the shape of the bf16
// kernel, with twice as many k in a register.

namespace flux2::gemm::neon_int8 {

namespace {

constexpr int kMr = 8, kNr = 12, kKr = 8;

// From 2×2 blocks of int32 to rows of f32: the six blocks of a pair of rows take the place of those two rows.
void to_rows(float* tile) {
  for (int pair = 0; pair < kMr / 2; ++pair, tile += 2 * kNr) {
    float64x2_t block[6];
    for (int j = 0; j < 6; ++j)
      block[j] = vreinterpretq_f64_f32(vcvtq_f32_s32(vreinterpretq_s32_f32(vld1q_f32(tile + 4 * j))));
    for (int j = 0; j < 6; j += 2) {
      vst1q_f32(tile + 2 * j, vreinterpretq_f32_f64(vzip1q_f64(block[j], block[j + 1])));
      vst1q_f32(tile + kNr + 2 * j, vreinterpretq_f32_f64(vzip2q_f64(block[j], block[j + 1])));
    }
  }
}

// clang-format off
#define FLUX2_COLUMN(b, c0, c1, c2, c3)      \
  "smmla v" #c0 ".4s, v0.16b, v" #b ".16b\n" \
  "smmla v" #c1 ".4s, v1.16b, v" #b ".16b\n" \
  "smmla v" #c2 ".4s, v2.16b, v" #b ".16b\n" \
  "smmla v" #c3 ".4s, v3.16b, v" #b ".16b\n"

#define FLUX2_TILE(op)                                              \
  op " {v8.4s, v9.4s, v10.4s, v11.4s}, [%[t]], #64\n"               \
  op " {v12.4s, v13.4s, v14.4s, v15.4s}, [%[t]], #64\n"             \
  op " {v16.4s, v17.4s, v18.4s, v19.4s}, [%[t]], #64\n"             \
  op " {v20.4s, v21.4s, v22.4s, v23.4s}, [%[t]], #64\n"             \
  op " {v24.4s, v25.4s, v26.4s, v27.4s}, [%[t]], #64\n"             \
  op " {v28.4s, v29.4s, v30.4s, v31.4s}, [%[t]], #64\n"

#define FLUX2_REGISTERS                                                                                             \
  "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", \
      "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31"

void run(int64_t k, const void* a, const void* b, float* tile, Pass pass) {
  if (pass.first)
    for (int i = 0; i < kMr * kNr; i += 4) vst1q_f32(tile + i, vdupq_n_f32(0.0f));
  int64_t steps = k / kKr;
  float* t = tile;
  asm volatile(
      FLUX2_TILE("ld1")
      "sub %[t], %[t], #384\n"
      "cbz %[steps], 2f\n"
      "1:\n"
      "ldp q0, q1, [%[a]]\n"
      "ldp q4, q5, [%[b]]\n"
      "ldp q2, q3, [%[a], #32]\n"
      "ldp q6, q7, [%[b], #32]\n"
      "subs %[steps], %[steps], #1\n"
      FLUX2_COLUMN(4, 8, 14, 20, 26)
      FLUX2_COLUMN(5, 9, 15, 21, 27)
      "ldp q4, q5, [%[b], #64]\n"
      "add %[a], %[a], #64\n"
      FLUX2_COLUMN(6, 10, 16, 22, 28)
      FLUX2_COLUMN(7, 11, 17, 23, 29)
      "add %[b], %[b], #96\n"
      FLUX2_COLUMN(4, 12, 18, 24, 30)
      FLUX2_COLUMN(5, 13, 19, 25, 31)
      "b.ne 1b\n"
      "2:\n"
      FLUX2_TILE("st1")
      : [t] "+r"(t), [a] "+r"(a), [b] "+r"(b), [steps] "+r"(steps)
      :
      : "memory", "cc", FLUX2_REGISTERS);
  if (pass.last) to_rows(tile);
}

}  // namespace

double ceiling(int64_t iterations) {
  int64_t left = iterations;
  asm volatile(
      "1:\n"
      FLUX2_COLUMN(4, 8, 14, 20, 26) FLUX2_COLUMN(5, 9, 15, 21, 27) FLUX2_COLUMN(6, 10, 16, 22, 28)
      FLUX2_COLUMN(7, 11, 17, 23, 29) FLUX2_COLUMN(4, 12, 18, 24, 30) FLUX2_COLUMN(5, 13, 19, 25, 31)
      "subs %[left], %[left], #1\n"
      "b.ne 1b\n"
      : [left] "+r"(left) : : "cc", FLUX2_REGISTERS);
  return static_cast<double>(iterations) * 24 * 2 * 2 * 2 * 8;
}
// clang-format on

const MicroKernel<int8_t> kKernel = {
    {.name = "neon int8 8x12", .mr = kMr, .nr = kNr, .kr = kKr, .a_step = kKr * kMr, .b_step = kKr * kNr, .run = run,
     .instruction = "SMMLA", .ceiling = ceiling},
    pack<kMr>, pack<kNr>};

}  // namespace flux2::gemm::neon_int8
