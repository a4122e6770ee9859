#include <immintrin.h>

#include "backend/cpu/gemm/kernel_x86.h"

// Rows rounded to bf16 by VCVTNE2PS2BF16, 32 elements at a time; the loops of convert.cpp spend most of their time on
// rounding. Numbers too small to be normal become zero, as they do in products of bf16.

namespace flux2::gemm::avx512_bf16 {

namespace {

void store(__m512 low, __m512 high, bf16* out) { _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(high, low)); }

__mmask16 first(int64_t n) { return static_cast<__mmask16>(n >= 16 ? 0xffff : n <= 0 ? 0 : (1 << n) - 1); }

void store_first(int64_t n, __m512 low, __m512 high, bf16* out) {
  const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(high, low);
  _mm512_mask_storeu_epi16(out, n >= 32 ? ~__mmask32{0} : (__mmask32{1} << n) - 1, both);
}

void convert_f32(const float* in, int64_t count, bf16* out) {
  for (int64_t i = 0; i < count; i += 32) {
    const int64_t n = count - i;
    store_first(n, _mm512_maskz_loadu_ps(first(n), in + i), _mm512_maskz_loadu_ps(first(n - 16), in + i + 16), out + i);
  }
}

void convert_f16(const f16* in, int64_t count, bf16* out) {
  for (int64_t i = 0; i < count; i += 32) {
    const int64_t n = count - i;
    store_first(n, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), in + i)),
                _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n - 16), in + i + 16)), out + i);
  }
}

__m512 widen(__m128i integers) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(integers)); }

__m512 widen_scale(f16 scale) { return _mm512_set1_ps(_mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(scale.bits)))); }

__m128i sixteen_bytes(const void* at) { return _mm_loadu_si128(static_cast<const __m128i*>(at)); }

void convert_blocks(const BlockQ8_0* block, int64_t count, bf16* out) {
  for (int64_t i = 0; i < count; i += kScaleBlock, ++block) {
    const __m512 scale = widen_scale(block->scale);
    const __m512 low = widen(sixteen_bytes(block->q)), high = widen(sixteen_bytes(block->q + 16));
    store(_mm512_mul_ps(scale, low), _mm512_mul_ps(scale, high), out + i);
  }
}

void convert_blocks(const BlockQ4_0* block, int64_t count, bf16* out) {
  const __m128i nibble = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);
  for (int64_t i = 0; i < count; i += kScaleBlock, ++block) {
    const __m512 scale = widen_scale(block->scale);
    const __m128i pairs = sixteen_bytes(block->q);
    const __m512 low = widen(_mm_sub_epi8(_mm_and_si128(pairs, nibble), eight));
    const __m512 high = widen(_mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(pairs, 4), nibble), eight));
    store(_mm512_mul_ps(scale, low), _mm512_mul_ps(scale, high), out + i);
  }
}

}  // namespace

bool convert(DType dtype, const void* row, int64_t start, int64_t count, bf16* out) {
  const bool whole = start % kScaleBlock == 0 && count % kScaleBlock == 0;
  switch (dtype) {
    case DType::F32: return convert_f32(static_cast<const float*>(row) + start, count, out), true;
    case DType::F16: return convert_f16(static_cast<const f16*>(row) + start, count, out), true;
    case DType::Q8_0:
      if (whole) convert_blocks(static_cast<const BlockQ8_0*>(row) + start / kScaleBlock, count, out);
      return whole;
    case DType::Q4_0:
      if (whole) convert_blocks(static_cast<const BlockQ4_0*>(row) + start / kScaleBlock, count, out);
      return whole;
    default: return false;
  }
}

}  // namespace flux2::gemm::avx512_bf16
