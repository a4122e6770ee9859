#include <immintrin.h>

#include <cstring>
#include <limits>
#include <type_traits>

#include "backend/cpu/gemm/compiler.h"
#include "backend/cpu/gemm/kernel_x86.h"
#include "tensor/blocks.h"

// Products of rows with AVX2.

namespace flux2::gemm::avx2 {

namespace {

// Sums of two neighbouring products fit into int16: none is above 128 · 127.
[[gnu::always_inline]] inline __m256i products(__m256i a, __m256i b) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1));
}

#include "backend/cpu/gemm/row_dots_x86.inc"

}  // namespace

constinit const RowDots kRowDots = row_dots();

}  // namespace flux2::gemm::avx2
