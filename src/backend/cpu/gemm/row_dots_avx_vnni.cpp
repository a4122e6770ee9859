#include <immintrin.h>

#include <cstring>
#include <limits>
#include <type_traits>

#include "backend/cpu/gemm/compiler.h"
#include "backend/cpu/gemm/kernel_x86.h"
#include "tensor/blocks.h"

// Products of rows with the 256-bit VPDPBUSD of processors without AVX-512.

namespace flux2::gemm::avx_vnni {

namespace {

[[gnu::always_inline]] inline __m256i products(__m256i a, __m256i b) {
  return _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), a, b);
}

#include "backend/cpu/gemm/row_dots_x86.inc"

}  // namespace

constinit const RowDots kRowDots = row_dots();

}  // namespace flux2::gemm::avx_vnni
