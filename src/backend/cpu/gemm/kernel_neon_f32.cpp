#include <arm_neon.h>

#include "backend/cpu/gemm/kernel_neon.h"

// 8 × 12 with FMLA by lane: 24 accumulators, and each k takes two registers of a and three of b.

namespace flux2::gemm::neon_f32 {

namespace {

constexpr int kMr = 8, kNr = 12;

// panel[k][row]
template <int rows>
void pack(int64_t k, const float* const* row, void* to) {
  auto* panel = static_cast<float*>(to);
  int64_t i = 0;
  for (; i + 4 <= k; i += 4, panel += 4 * rows) {
    for (int r = 0; r < rows; r += 4) {
      const float32x4_t r0 = vld1q_f32(row[r] + i), r1 = vld1q_f32(row[r + 1] + i);
      const float32x4_t r2 = vld1q_f32(row[r + 2] + i), r3 = vld1q_f32(row[r + 3] + i);
      const float64x2_t even01 = vreinterpretq_f64_f32(vtrn1q_f32(r0, r1)), odd01 = vreinterpretq_f64_f32(vtrn2q_f32(r0, r1));
      const float64x2_t even23 = vreinterpretq_f64_f32(vtrn1q_f32(r2, r3)), odd23 = vreinterpretq_f64_f32(vtrn2q_f32(r2, r3));
      vst1q_f32(panel + r, vreinterpretq_f32_f64(vzip1q_f64(even01, even23)));
      vst1q_f32(panel + rows + r, vreinterpretq_f32_f64(vzip1q_f64(odd01, odd23)));
      vst1q_f32(panel + 2 * rows + r, vreinterpretq_f32_f64(vzip2q_f64(even01, even23)));
      vst1q_f32(panel + 3 * rows + r, vreinterpretq_f32_f64(vzip2q_f64(odd01, odd23)));
    }
  }
  for (; i < k; ++i, panel += rows)
    for (int r = 0; r < rows; ++r) panel[r] = row[r][i];
}

#define FLUX2_ROW(i, a, lane)                      \
  c##i##0 = vfmaq_laneq_f32(c##i##0, b0, a, lane); \
  c##i##1 = vfmaq_laneq_f32(c##i##1, b1, a, lane); \
  c##i##2 = vfmaq_laneq_f32(c##i##2, b2, a, lane);
#define FLUX2_LOAD(i)                                                                   \
  float32x4_t c##i##0 = pass.first ? vdupq_n_f32(0.0f) : vld1q_f32(tile + i * kNr);     \
  float32x4_t c##i##1 = pass.first ? vdupq_n_f32(0.0f) : vld1q_f32(tile + i * kNr + 4); \
  float32x4_t c##i##2 = pass.first ? vdupq_n_f32(0.0f) : vld1q_f32(tile + i * kNr + 8);
#define FLUX2_STORE(i)                    \
  vst1q_f32(tile + i * kNr, c##i##0);     \
  vst1q_f32(tile + i * kNr + 4, c##i##1); \
  vst1q_f32(tile + i * kNr + 8, c##i##2);

// Rows of macros: the formatter never agrees with itself about them.
// clang-format off
void run(int64_t k, const void* panel_a, const void* panel_b, float* tile, Pass pass) {
  const auto *a = static_cast<const float*>(panel_a), *b = static_cast<const float*>(panel_b);
  FLUX2_LOAD(0) FLUX2_LOAD(1) FLUX2_LOAD(2) FLUX2_LOAD(3)
  FLUX2_LOAD(4) FLUX2_LOAD(5) FLUX2_LOAD(6) FLUX2_LOAD(7)
  for (int64_t i = 0; i < k; ++i, a += kMr, b += kNr) {
    const float32x4_t a0 = vld1q_f32(a), a1 = vld1q_f32(a + 4);
    const float32x4_t b0 = vld1q_f32(b), b1 = vld1q_f32(b + 4), b2 = vld1q_f32(b + 8);
    FLUX2_ROW(0, a0, 0) FLUX2_ROW(1, a0, 1) FLUX2_ROW(2, a0, 2) FLUX2_ROW(3, a0, 3)
    FLUX2_ROW(4, a1, 0) FLUX2_ROW(5, a1, 1) FLUX2_ROW(6, a1, 2) FLUX2_ROW(7, a1, 3)
  }
  FLUX2_STORE(0) FLUX2_STORE(1) FLUX2_STORE(2) FLUX2_STORE(3)
  FLUX2_STORE(4) FLUX2_STORE(5) FLUX2_STORE(6) FLUX2_STORE(7)
}
// clang-format on

// clang-format off
#define FLUX2_SUMS(a, c0, c1, c2, c3, c4, c5)    \
  "fmla v" #c0 ".4s, v0.4s, v1.s[" #a "]\n"      \
  "fmla v" #c1 ".4s, v0.4s, v1.s[" #a "]\n"      \
  "fmla v" #c2 ".4s, v0.4s, v1.s[" #a "]\n"      \
  "fmla v" #c3 ".4s, v0.4s, v1.s[" #a "]\n"      \
  "fmla v" #c4 ".4s, v0.4s, v1.s[" #a "]\n"      \
  "fmla v" #c5 ".4s, v0.4s, v1.s[" #a "]\n"

// An operand is loaded again now and then: a Neoverse V1 that finds nothing but these instructions falls, after a while, to
// half their rate.
double ceiling(int64_t iterations) {
  const float operand[4] = {};
  int64_t left = iterations;
  asm volatile(
      "1:\n"
      FLUX2_SUMS(0, 8, 9, 10, 11, 12, 13) "ldr q0, [%[operand]]\n"
      FLUX2_SUMS(1, 14, 15, 16, 17, 18, 19) "ldr q1, [%[operand]]\n"
      FLUX2_SUMS(2, 20, 21, 22, 23, 24, 25) "ldr q0, [%[operand]]\n"
      FLUX2_SUMS(3, 26, 27, 28, 29, 30, 31) "ldr q1, [%[operand]]\n"
      "subs %[left], %[left], #1\n"
      "b.ne 1b\n"
      : [left] "+r"(left)
      : [operand] "r"(operand), "m"(operand)
      : "cc", "v0", "v1", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21",
        "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");
  return static_cast<double>(iterations) * 24 * 2 * 4;
}
// clang-format on

}  // namespace

const MicroKernel<float> kKernel = {{.name = "neon f32 8x12",
                                     .mr = kMr,
                                     .nr = kNr,
                                     .kr = 1,
                                     .a_step = 4 * kMr,
                                     .b_step = 4 * kNr,
                                     .run = run,
                                     .instruction = "FMLA",
                                     .ceiling = ceiling},
                                    pack<kMr>,
                                    pack<kNr>};

}  // namespace flux2::gemm::neon_f32
