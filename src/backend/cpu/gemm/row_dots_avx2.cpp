#include <immintrin.h>

#include <cstring>
#include <type_traits>

#include "backend/cpu/gemm/kernel_x86.h"
#include "tensor/blocks.h"

// Products of rows with AVX2, for every x86-64 processor that has it: VPDPBUSD was no faster, because memory
// limits these loops. Registers of 512 bits were not tried.

namespace flux2::gemm::avx2 {

namespace {

using Bytes = __m256i;
using Lanes = __m256i;
using Floats = __m256;  // the compiler has its arithmetic

[[gnu::always_inline]] inline Bytes load(const void* at) { return _mm256_loadu_si256(static_cast<const __m256i*>(at)); }
[[gnu::always_inline]] inline __m128i load_half(const void* at) { return _mm_loadu_si128(static_cast<const __m128i*>(at)); }
[[gnu::always_inline]] inline Bytes all_of(int byte) { return _mm256_set1_epi8(static_cast<char>(byte)); }
[[gnu::always_inline]] inline Bytes either(Bytes a, Bytes b) { return _mm256_or_si256(a, b); }
[[gnu::always_inline]] inline Bytes minus(Bytes a, Bytes b) { return _mm256_sub_epi8(a, b); }
[[gnu::always_inline]] inline Bytes equal(Bytes a, Bytes b) { return _mm256_cmpeq_epi8(a, b); }
[[gnu::always_inline]] inline bool any(Bytes bits) { return !_mm256_testz_si256(bits, bits); }

// The sums of four neighbouring a · b; a unsigned, b signed. Sums of two fit into int16: no product is above 128 · 127.
[[gnu::always_inline]] inline Lanes products(Bytes a, Bytes b) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1));
}

// Both factors signed, of which b is never −128. |a| may be 128, which fits as an unsigned number.
[[gnu::always_inline]] inline Lanes signed_products(Bytes a, Bytes b) {
  return products(_mm256_sign_epi8(a, a), _mm256_sign_epi8(b, a));
}

// Every byte shifted right by n, of which `mask` keeps the bits that count.
[[gnu::always_inline]] inline Bytes bits_from(Bytes bytes, int n, int mask) {
  return _mm256_and_si256(_mm256_srli_epi16(bytes, n), all_of(mask));
}

// Bits that would leave their byte must be 0.
[[gnu::always_inline]] inline Bytes shifted_left(Bytes bytes, int n) { return _mm256_slli_epi16(bytes, n); }

// Sixteen bytes hold 32 codes: the low nibbles the first half, the high nibbles the second.
[[gnu::always_inline]] inline Bytes nibbles(const uint8_t* at) {
  const __m128i both = load_half(at);
  return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(both, 4), both), all_of(15));
}

// The same where the nibbles of a byte are neighbours.
[[gnu::always_inline]] inline Bytes neighbouring_nibbles(const uint8_t* at) {
  const __m256i words = _mm256_cvtepu8_epi16(load_half(at));
  return _mm256_and_si256(_mm256_or_si256(words, _mm256_slli_epi16(words, 4)), all_of(15));
}

// Bit i of 32 becomes `value` in byte i.
[[gnu::always_inline]] inline Bytes spread_bits(const uint8_t* at, int value) {
  int32_t bits;
  std::memcpy(&bits, at, sizeof bits);
  const __m256i of_byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i own = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
  const __m256i kept = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), of_byte), own);
  return _mm256_and_si256(equal(kept, own), all_of(value));
}

[[gnu::always_inline]] inline Bytes look_up(const int8_t* sixteen, Bytes codes) {
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load_half(sixteen)), codes);
}

[[gnu::always_inline]] inline Floats splat(float x) { return _mm256_set1_ps(x); }
[[gnu::always_inline]] inline Floats splat_halves(float low, float high) {
  return _mm256_blend_ps(splat(low), splat(high), 0xf0);
}
[[gnu::always_inline]] inline Floats load_floats(const float* at) { return _mm256_loadu_ps(at); }
[[gnu::always_inline]] inline void store_floats(float* at, Floats values) { _mm256_storeu_ps(at, values); }
[[gnu::always_inline]] inline Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
[[gnu::always_inline]] inline Floats to_floats(Lanes sums) { return _mm256_cvtepi32_ps(sums); }

// 0 0 1 1 2 2 3 3, and the same of the upper four.
[[gnu::always_inline]] inline Floats doubled_low(Floats v) {
  return _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}
[[gnu::always_inline]] inline Floats doubled_high(Floats v) {
  return _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7));
}

[[gnu::always_inline]] inline float sum_of(Floats values) {
  const __m128 four = _mm256_castps256_ps128(values) + _mm256_extractf128_ps(values, 1);
  const __m128 two = four + _mm_movehl_ps(four, four);
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Eight int8, the first in the lowest byte.
[[gnu::always_inline]] inline Floats eight_integers(uint64_t bytes) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(bytes))));
}

// The f16 numbers at one place of eight blocks.
template <int bytes_of_block>
[[gnu::always_inline]] inline Floats halves_of_blocks(const uint8_t* at) {
  const auto half = [&](int block) {
    int16_t v;
    std::memcpy(&v, at + block * bytes_of_block, sizeof v);
    return v;
  };
  return _mm256_cvtph_ps(_mm_setr_epi16(half(0), half(1), half(2), half(3), half(4), half(5), half(6), half(7)));
}

[[gnu::always_inline]] inline Floats half_everywhere(const uint8_t* at) {
  int16_t v;
  std::memcpy(&v, at, sizeof v);
  return _mm256_cvtph_ps(_mm_set1_epi16(v));
}

[[gnu::always_inline]] inline Floats eight_e4m3(const uint8_t* at) {
  const __m256i bits = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
  const __m256i most = _mm256_set1_epi32(0x7f), magnitude = _mm256_and_si256(bits, most);
  const Floats value = _mm256_castsi256_ps(_mm256_slli_epi32(magnitude, 20)) * splat(0x1p120f);
  const __m256i nan = _mm256_and_si256(_mm256_cmpeq_epi32(magnitude, most), _mm256_set1_epi32(0x7fc00000));
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x80)), 24);
  return _mm256_or_ps(value, _mm256_castsi256_ps(_mm256_or_si256(nan, sign)));
}

struct SixteenFloats {
  Floats low, high;
};

[[gnu::always_inline]] inline SixteenFloats widen_sixteen(__m256i halves) {
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}

[[gnu::always_inline]] inline SixteenFloats f16_values(const uint8_t* at) { return widen_sixteen(load(at)); }
[[gnu::always_inline]] inline SixteenFloats e5m2_values(const uint8_t* at) {
  return widen_sixteen(_mm256_slli_epi16(_mm256_cvtepu8_epi16(load_half(at)), 8));
}
[[gnu::always_inline]] inline SixteenFloats e4m3_values(const uint8_t* at) {
  const __m256i words = _mm256_slli_epi16(_mm256_cvtepi8_epi16(load_half(at)), 7);
  return widen_sixteen(_mm256_and_si256(words, _mm256_set1_epi16(static_cast<int16_t>(0xbf80))));
}

#include "backend/cpu/gemm/row_dots_formats.inc"  // which is written with these

}  // namespace

constinit const RowDots kRowDots = row_dots();

}  // namespace flux2::gemm::avx2
