#include <immintrin.h>

#include "backend/cpu/gemm/kernel_x86.h"

// 12 × 32 with VDPBF16PS, which adds the products of two neighbouring k to each of sixteen sums.

namespace flux2::gemm::avx512_bf16 {

namespace {

constexpr int kMr = 12, kNr = 32;

// panel[k / 2][row][2]: a pair of k travels as one 32-bit word.
template <int rows>
void pack(int64_t k, const bf16* const* row, void* to) {
  auto* out = static_cast<float*>(to);
  int64_t i = 0;
  for (; i + 8 <= k; i += 8, out += 4 * rows) {
    for (int r = 0; r < rows; r += 4) {
      __m128 r0 = _mm_loadu_ps(reinterpret_cast<const float*>(row[r] + i));
      __m128 r1 = _mm_loadu_ps(reinterpret_cast<const float*>(row[r + 1] + i));
      __m128 r2 = _mm_loadu_ps(reinterpret_cast<const float*>(row[r + 2] + i));
      __m128 r3 = _mm_loadu_ps(reinterpret_cast<const float*>(row[r + 3] + i));
      _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
      _mm_storeu_ps(out + r, r0);
      _mm_storeu_ps(out + rows + r, r1);
      _mm_storeu_ps(out + 2 * rows + r, r2);
      _mm_storeu_ps(out + 3 * rows + r, r3);
    }
  }
  auto* panel = reinterpret_cast<bf16*>(out);
  for (; i < k; i += 2, panel += 2 * rows)
    for (int r = 0; r < rows; ++r) {
      panel[2 * r] = row[r][i];
      panel[2 * r + 1] = i + 1 < k ? row[r][i + 1] : bf16{0};
    }
}

#define FLUX2_LOAD(i)                                                                  \
  __m512 c##i##0 = pass.first ? _mm512_setzero_ps() : _mm512_loadu_ps(tile + i * kNr); \
  __m512 c##i##1 = pass.first ? _mm512_setzero_ps() : _mm512_loadu_ps(tile + i * kNr + 16);
#define FLUX2_ROW(i)                                                                               \
  {                                                                                                \
    const __m512bh ai = (__m512bh)_mm512_set1_epi32(_mm_cvtsi128_si32(_mm_loadu_si32(a + 2 * i))); \
    c##i##0 = _mm512_dpbf16_ps(c##i##0, ai, b0);                                                   \
    c##i##1 = _mm512_dpbf16_ps(c##i##1, ai, b1);                                                   \
  }
#define FLUX2_STORE(i)                       \
  _mm512_storeu_ps(tile + i * kNr, c##i##0); \
  _mm512_storeu_ps(tile + i * kNr + 16, c##i##1);

// Rows of macros: the formatter never agrees with itself about them.
// clang-format off
void run(int64_t k, const void* panel_a, const void* panel_b, float* tile, Pass pass) {
  const auto *a = static_cast<const bf16*>(panel_a), *b = static_cast<const bf16*>(panel_b);
  FLUX2_LOAD(0) FLUX2_LOAD(1) FLUX2_LOAD(2) FLUX2_LOAD(3) FLUX2_LOAD(4) FLUX2_LOAD(5)
  FLUX2_LOAD(6) FLUX2_LOAD(7) FLUX2_LOAD(8) FLUX2_LOAD(9) FLUX2_LOAD(10) FLUX2_LOAD(11)
  for (int64_t i = 0; i < k; i += 2, a += 2 * kMr, b += 2 * kNr) {
    const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + 32);
    FLUX2_ROW(0) FLUX2_ROW(1) FLUX2_ROW(2) FLUX2_ROW(3) FLUX2_ROW(4) FLUX2_ROW(5)
    FLUX2_ROW(6) FLUX2_ROW(7) FLUX2_ROW(8) FLUX2_ROW(9) FLUX2_ROW(10) FLUX2_ROW(11)
  }
  FLUX2_STORE(0) FLUX2_STORE(1) FLUX2_STORE(2) FLUX2_STORE(3) FLUX2_STORE(4) FLUX2_STORE(5)
  FLUX2_STORE(6) FLUX2_STORE(7) FLUX2_STORE(8) FLUX2_STORE(9) FLUX2_STORE(10) FLUX2_STORE(11)
}

#define FLUX2_ZERO(i) __m512 c##i##0 = _mm512_setzero_ps(), c##i##1 = _mm512_setzero_ps();
// Row i at `at`: of twelve rows, each of four pointers reaches three.
#define FLUX2_TAP_ROW(i, at)                                                                  \
  {                                                                                           \
    const __m512bh ai = (__m512bh)_mm512_set1_epi32(_mm_cvtsi128_si32(_mm_loadu_si32(at)));   \
    c##i##0 = _mm512_dpbf16_ps(c##i##0, ai, b0);                                              \
    c##i##1 = _mm512_dpbf16_ps(c##i##1, ai, b1);                                              \
  }

void run_taps(const TapRows& rows, const void* panel_b, float* tile) {
  const auto* b = static_cast<const bf16*>(panel_b);
  const int64_t s = rows.row_bytes / 2;
  FLUX2_ZERO(0) FLUX2_ZERO(1) FLUX2_ZERO(2) FLUX2_ZERO(3) FLUX2_ZERO(4) FLUX2_ZERO(5)
  FLUX2_ZERO(6) FLUX2_ZERO(7) FLUX2_ZERO(8) FLUX2_ZERO(9) FLUX2_ZERO(10) FLUX2_ZERO(11)
  for (int64_t t = 0; t < rows.taps; ++t) {
    const auto* p = reinterpret_cast<const bf16*>(rows.first + rows.offsets[t]);
    const bf16 *q = p + 3 * s, *u = p + 6 * s, *v = p + 9 * s;
    for (int64_t i = 0; i < rows.k; i += 2, b += 2 * kNr) {
      const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + 32);
      FLUX2_TAP_ROW(0, p + i) FLUX2_TAP_ROW(1, p + s + i) FLUX2_TAP_ROW(2, p + 2 * s + i)
      FLUX2_TAP_ROW(3, q + i) FLUX2_TAP_ROW(4, q + s + i) FLUX2_TAP_ROW(5, q + 2 * s + i)
      FLUX2_TAP_ROW(6, u + i) FLUX2_TAP_ROW(7, u + s + i) FLUX2_TAP_ROW(8, u + 2 * s + i)
      FLUX2_TAP_ROW(9, v + i) FLUX2_TAP_ROW(10, v + s + i) FLUX2_TAP_ROW(11, v + 2 * s + i)
    }
  }
  FLUX2_STORE(0) FLUX2_STORE(1) FLUX2_STORE(2) FLUX2_STORE(3) FLUX2_STORE(4) FLUX2_STORE(5)
  FLUX2_STORE(6) FLUX2_STORE(7) FLUX2_STORE(8) FLUX2_STORE(9) FLUX2_STORE(10) FLUX2_STORE(11)
}
// clang-format on

double ceiling(int64_t iterations) {
  __m512 factor = _mm512_setzero_ps(), sum[16] = {};
  asm volatile("" : "+v"(factor));
  for (__m512& s : sum) asm volatile("" : "+v"(s));  // or equal sums would be taken for one
  for (int64_t i = 0; i < iterations; ++i)
    for (__m512& s : sum) s = _mm512_dpbf16_ps(s, (__m512bh)factor, (__m512bh)factor);
  for (__m512& s : sum) asm volatile("" : : "v"(s));
  return static_cast<double>(iterations) * 16 * 64;
}

}  // namespace

const MicroKernel<bf16> kKernel = {{.name = "avx512 bf16 12x32",
                                    .mr = kMr,
                                    .nr = kNr,
                                    .kr = 2,
                                    .a_step = 4 * kMr,
                                    .b_step = 4 * kNr,
                                    .run = run,
                                    .instruction = "VDPBF16PS, 512 bits",
                                    .ceiling = ceiling},
                                   pack<kMr>,
                                   pack<kNr>,
                                   convert,
                                   {run_taps, pack<kNr>}};

}  // namespace flux2::gemm::avx512_bf16
