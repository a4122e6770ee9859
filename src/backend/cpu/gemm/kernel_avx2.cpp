#include <immintrin.h>

#include "backend/cpu/gemm/kernel_x86.h"

// 6 × 16: twelve accumulators of eight floats, two registers of b and one broadcast of a make fifteen of sixteen.

namespace flux2::gemm::avx2 {

namespace {

constexpr int kMr = 6, kNr = 16;

// panel[k][row]
template <int rows>
void pack(int64_t k, const float* const* row, void* to) {
  auto* panel = static_cast<float*>(to);
  constexpr int kWhole = rows / 4 * 4;
  int64_t i = 0;
  for (; i + 4 <= k; i += 4, panel += 4 * rows) {
    for (int r = 0; r < kWhole; r += 4) {
      __m128 r0 = _mm_loadu_ps(row[r] + i), r1 = _mm_loadu_ps(row[r + 1] + i);
      __m128 r2 = _mm_loadu_ps(row[r + 2] + i), r3 = _mm_loadu_ps(row[r + 3] + i);
      _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
      _mm_storeu_ps(panel + r, r0);
      _mm_storeu_ps(panel + rows + r, r1);
      _mm_storeu_ps(panel + 2 * rows + r, r2);
      _mm_storeu_ps(panel + 3 * rows + r, r3);
    }
    for (int r = kWhole; r < rows; ++r)
      for (int j = 0; j < 4; ++j) panel[j * rows + r] = row[r][i + j];
  }
  for (; i < k; ++i, panel += rows)
    for (int r = 0; r < rows; ++r) panel[r] = row[r][i];
}

#define FLUX2_LOAD(i)                                                                  \
  __m256 c##i##0 = pass.first ? _mm256_setzero_ps() : _mm256_loadu_ps(tile + i * kNr); \
  __m256 c##i##1 = pass.first ? _mm256_setzero_ps() : _mm256_loadu_ps(tile + i * kNr + 8);
#define FLUX2_ROW(i)                              \
  {                                               \
    const __m256 ai = _mm256_broadcast_ss(a + i); \
    c##i##0 = _mm256_fmadd_ps(ai, b0, c##i##0);   \
    c##i##1 = _mm256_fmadd_ps(ai, b1, c##i##1);   \
  }
#define FLUX2_STORE(i)                       \
  _mm256_storeu_ps(tile + i * kNr, c##i##0); \
  _mm256_storeu_ps(tile + i * kNr + 8, c##i##1);

void run(int64_t k, const void* panel_a, const void* panel_b, float* tile, Pass pass) {
  const auto *a = static_cast<const float*>(panel_a), *b = static_cast<const float*>(panel_b);
  FLUX2_LOAD(0)
  FLUX2_LOAD(1) FLUX2_LOAD(2) FLUX2_LOAD(3) FLUX2_LOAD(4) FLUX2_LOAD(5) for (int64_t i = 0; i < k; ++i, a += kMr, b += kNr) {
    const __m256 b0 = _mm256_loadu_ps(b), b1 = _mm256_loadu_ps(b + 8);
    FLUX2_ROW(0) FLUX2_ROW(1) FLUX2_ROW(2) FLUX2_ROW(3) FLUX2_ROW(4) FLUX2_ROW(5)
  }
  FLUX2_STORE(0) FLUX2_STORE(1) FLUX2_STORE(2) FLUX2_STORE(3) FLUX2_STORE(4) FLUX2_STORE(5)
}

// clang-format off
#define FLUX2_ZERO(i) __m256 c##i##0 = _mm256_setzero_ps(), c##i##1 = _mm256_setzero_ps();
#define FLUX2_TAP_ROW(i, at)                                   \
  {                                                            \
    const __m256 ai = _mm256_broadcast_ss(at);                 \
    c##i##0 = _mm256_fmadd_ps(ai, b0, c##i##0);                \
    c##i##1 = _mm256_fmadd_ps(ai, b1, c##i##1);                \
  }

void run_taps(const TapRows& rows, const void* panel_b, float* tile) {
  const auto* b = static_cast<const float*>(panel_b);
  const int64_t s = rows.row_bytes / 4;
  FLUX2_ZERO(0) FLUX2_ZERO(1) FLUX2_ZERO(2) FLUX2_ZERO(3) FLUX2_ZERO(4) FLUX2_ZERO(5)
  for (int64_t t = 0; t < rows.taps; ++t) {
    const auto* p = reinterpret_cast<const float*>(rows.first + rows.offsets[t]);
    const float* q = p + 3 * s;
    for (int64_t i = 0; i < rows.k; ++i, b += kNr) {
      const __m256 b0 = _mm256_loadu_ps(b), b1 = _mm256_loadu_ps(b + 8);
      FLUX2_TAP_ROW(0, p + i) FLUX2_TAP_ROW(1, p + s + i) FLUX2_TAP_ROW(2, p + 2 * s + i)
      FLUX2_TAP_ROW(3, q + i) FLUX2_TAP_ROW(4, q + s + i) FLUX2_TAP_ROW(5, q + 2 * s + i)
    }
  }
  FLUX2_STORE(0) FLUX2_STORE(1) FLUX2_STORE(2) FLUX2_STORE(3) FLUX2_STORE(4) FLUX2_STORE(5)
}
// clang-format on

double ceiling(int64_t iterations) {
  __m256 factor = _mm256_setzero_ps(), sum[12] = {};
  asm volatile("" : "+x"(factor));
  for (__m256& s : sum) asm volatile("" : "+x"(s));  // or equal sums would be taken for one
  for (int64_t i = 0; i < iterations; ++i)
    for (__m256& s : sum) s = _mm256_fmadd_ps(factor, factor, s);
  for (__m256& s : sum) asm volatile("" : : "x"(s));
  return static_cast<double>(iterations) * 12 * 16;
}

}  // namespace

const MicroKernel<float> kKernel = {{.name = "avx2 f32 6x16",
                                     .mr = kMr,
                                     .nr = kNr,
                                     .kr = 1,
                                     .a_step = 4 * kMr,
                                     .b_step = 4 * kNr,
                                     .run = run,
                                     .instruction = "VFMADD, 256 bits",
                                     .ceiling = ceiling},
                                    pack<kMr>,
                                    pack<kNr>,
                                    nullptr,
                                    {run_taps, pack<kNr>}};

}  // namespace flux2::gemm::avx2
