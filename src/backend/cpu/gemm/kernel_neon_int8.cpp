#include "backend/cpu/gemm/kernel_neon.h"
#include "backend/cpu/gemm/neon_int8.h"

// 8 × 12 with SMMLA, which multiplies a 2×8 by an 8×2 block of int8 into a 2×2 block of int32: the shape of the bf16
// kernel, with twice as many k in a register.

namespace flux2::gemm::neon_int8 {

namespace {

constexpr int kMr = 8, kNr = 12, kKr = 8;

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

#define FLUX2_ZERO(c0, c1, c2, c3)                                                                  \
  "movi v" #c0 ".4s, #0\n movi v" #c1 ".4s, #0\n movi v" #c2 ".4s, #0\n movi v" #c3 ".4s, #0\n"

// The six 2×2 blocks of a pair of rows, as f32, to those two rows.
#define FLUX2_ROWS(c0, c1, c2, c3, c4, c5)                                                          \
  "scvtf v" #c0 ".4s, v" #c0 ".4s\n scvtf v" #c1 ".4s, v" #c1 ".4s\n scvtf v" #c2 ".4s, v" #c2 ".4s\n" \
  "scvtf v" #c3 ".4s, v" #c3 ".4s\n scvtf v" #c4 ".4s, v" #c4 ".4s\n scvtf v" #c5 ".4s, v" #c5 ".4s\n" \
  "zip1 v0.2d, v" #c0 ".2d, v" #c1 ".2d\n zip2 v3.2d, v" #c0 ".2d, v" #c1 ".2d\n"                   \
  "zip1 v1.2d, v" #c2 ".2d, v" #c3 ".2d\n zip2 v4.2d, v" #c2 ".2d, v" #c3 ".2d\n"                   \
  "zip1 v2.2d, v" #c4 ".2d, v" #c5 ".2d\n zip2 v5.2d, v" #c4 ".2d, v" #c5 ".2d\n"                   \
  "st1 {v0.4s, v1.4s, v2.4s, v3.4s}, [%[t]], #64\n st1 {v4.4s, v5.4s}, [%[t]], #32\n"

#define FLUX2_REGISTERS                                                                                             \
  "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", \
      "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31"

void run(int64_t k, const void* a, const void* b, float* tile, Pass pass) {
  int64_t steps = k / kKr;
  asm volatile(
      "cbz %w[first], 3f\n"
      FLUX2_ZERO(8, 9, 10, 11) FLUX2_ZERO(12, 13, 14, 15) FLUX2_ZERO(16, 17, 18, 19)
      FLUX2_ZERO(20, 21, 22, 23) FLUX2_ZERO(24, 25, 26, 27) FLUX2_ZERO(28, 29, 30, 31)
      "b 4f\n"
      "3:\n"
      FLUX2_TILE("ld1")
      "sub %[t], %[t], #384\n"
      "4:\n"
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
      "cbnz %w[last], 5f\n"
      FLUX2_TILE("st1")
      "b 6f\n"
      "5:\n"
      FLUX2_ROWS(8, 9, 10, 11, 12, 13) FLUX2_ROWS(14, 15, 16, 17, 18, 19)
      FLUX2_ROWS(20, 21, 22, 23, 24, 25) FLUX2_ROWS(26, 27, 28, 29, 30, 31)
      "6:\n"
      : [t] "+r"(tile), [a] "+r"(a), [b] "+r"(b), [steps] "+r"(steps)
      : [first] "r"(static_cast<int>(pass.first)), [last] "r"(static_cast<int>(pass.last))
      : "memory", "cc", FLUX2_REGISTERS);
}

}  // namespace

// An operand is loaded again now and then: a Neoverse V1 that finds nothing but these instructions falls, after a while, to
// half their rate.
double ceiling(int64_t iterations) {
  const float operand[4] = {};
  int64_t left = iterations;
  asm volatile(
      "1:\n"
      FLUX2_COLUMN(4, 8, 14, 20, 26) "ldr q0, [%[operand]]\n" FLUX2_COLUMN(5, 9, 15, 21, 27) "ldr q1, [%[operand]]\n"
      FLUX2_COLUMN(6, 10, 16, 22, 28) FLUX2_COLUMN(7, 11, 17, 23, 29) "ldr q2, [%[operand]]\n"
      FLUX2_COLUMN(4, 12, 18, 24, 30) "ldr q3, [%[operand]]\n" FLUX2_COLUMN(5, 13, 19, 25, 31)
      "subs %[left], %[left], #1\n"
      "b.ne 1b\n"
      : [left] "+r"(left) : [operand] "r"(operand), "m"(operand) : "cc", FLUX2_REGISTERS);
  return static_cast<double>(iterations) * 24 * 2 * 2 * 2 * 8;
}
// clang-format on

const MicroKernel<int8_t> kKernel = {{.name = "neon int8 8x12",
                                      .mr = kMr,
                                      .nr = kNr,
                                      .kr = kKr,
                                      .a_step = kKr * kMr,
                                      .b_step = kKr * kNr,
                                      .run = run,
                                      .instruction = "SMMLA",
                                      .ceiling = ceiling},
                                     pack<kMr>,
                                     pack<kNr>};

}  // namespace flux2::gemm::neon_int8
