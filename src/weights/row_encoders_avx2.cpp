// Compiled for AVX2 and F16C, without FMA: a product that is rounded once less would give other bytes. It calls no function of a
// shared header, which the linker might keep in this file's form for machines that lack the instructions.
#include <cpuid.h>
#include <immintrin.h>

#include "weights/row_encoders.h"

namespace flux2 {

namespace {

constexpr int64_t kLanes = 8;
constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

inline __m256i magnitudes(__m256 x) { return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff)); }

inline float bits_as_float(int bits) { return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits))); }

inline int largest_lane(__m256i x) {
  __m128i half = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, _MM_SHUFFLE(1, 0, 3, 2)));
  return _mm_cvtsi128_si32(_mm_max_epi32(half, _mm_shuffle_epi32(half, _MM_SHUFFLE(2, 3, 0, 1))));
}

// The lowest bytes of 8 lanes. The lanes hold 0 … 255.
inline void store_bytes(__m256i lanes, void* out) {
  const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
  _mm_storel_epi64(static_cast<__m128i*>(out), _mm_packus_epi16(words, words));
}

// Calls `encode` with each group of 8 values and where their bytes go. The last values go through a padded copy.
template <class Encode>
inline void for_lanes(const float* x, int64_t count, void* out, const Encode& encode) {
  auto* to = static_cast<uint8_t*>(out);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) encode(_mm256_loadu_ps(x + i), to + i);
  if (i == count) return;
  float rest[kLanes] = {};
  uint8_t bytes[kLanes];
  for (int64_t j = 0; i + j < count; ++j) rest[j] = x[i + j];
  encode(_mm256_loadu_ps(rest), bytes);
  for (int64_t j = 0; i + j < count; ++j) to[i + j] = bytes[j];
}

void widen_bf16(const void* values, int64_t count, float* out) {
  const auto* bytes = static_cast<const uint8_t*>(values);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 2 * i));
    _mm256_storeu_ps(out + i, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16)));
  }
  for (; i < count; ++i)
    out[i] = bits_as_float(
        static_cast<int>(static_cast<uint32_t>(bytes[2 * i]) << 16 | static_cast<uint32_t>(bytes[2 * i + 1]) << 24));
}

float largest_magnitude(const float* x, int64_t count) {
  __m256i largest[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes)
    for (int j = 0; j < 4; ++j) largest[j] = _mm256_max_epi32(largest[j], magnitudes(_mm256_loadu_ps(x + i + j * kLanes)));
  for (; i < count; ++i) largest[0] = _mm256_max_epi32(largest[0], magnitudes(_mm256_set1_ps(x[i])));
  return bits_as_float(
      largest_lane(_mm256_max_epi32(_mm256_max_epi32(largest[0], largest[1]), _mm256_max_epi32(largest[2], largest[3]))));
}

void to_int8(const float* x, int64_t count, float factor, int8_t* out) {
  const __m256 f = _mm256_set1_ps(factor), magic = _mm256_set1_ps(0x1.8p23f);
  const __m256i low = _mm256_set1_epi32(0xff);
  for_lanes(x, count, out, [=](__m256 v, uint8_t* to) {
    store_bytes(_mm256_and_si256(_mm256_castps_si256(_mm256_add_ps(_mm256_mul_ps(v, f), magic)), low), to);
  });
}

void to_e4m3(const float* x, int64_t count, float factor, uint8_t* out) {
  const __m256 f = _mm256_set1_ps(factor), magic = _mm256_set1_ps(0x1p14f);
  const auto all = [](int v) { return _mm256_set1_epi32(v); };
  for_lanes(x, count, out, [=](__m256 v, uint8_t* to) {
    const __m256i bits = _mm256_castps_si256(_mm256_mul_ps(v, f)), magnitude = _mm256_and_si256(bits, all(0x7fffffff));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(magnitude, 20), all(1));
    const __m256i normal =
        _mm256_sub_epi32(_mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(magnitude, all(0x7ffff)), odd), 20), all(120 << 3));
    const __m256i tiny = _mm256_and_si256(_mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(magnitude), magic)), all(15));
    const __m256i is_tiny = _mm256_cmpgt_epi32(all(0x3c800000), magnitude);
    const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), all(0x80));
    const __m256i code = _mm256_or_si256(_mm256_blendv_epi8(normal, tiny, is_tiny), sign);
    store_bytes(_mm256_and_si256(code, all(0xff)), to);
  });
}

constexpr int64_t kBlock = 32;
constexpr int kInfinite = 0x7f800000;

inline void put_half(uint8_t* at, float v) {
  const auto half = static_cast<uint16_t>(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(v), kNearest)));
  at[0] = static_cast<uint8_t>(half & 0xff);
  at[1] = static_cast<uint8_t>(half >> 8);
}

// What stands for a block that holds something other than numbers.
inline void put_nan(uint8_t* b, int64_t bytes) {
  for (int64_t i = 0; i < bytes; ++i) b[i] = 0;
  b[1] = 0x7e;
}

inline float inverse_of(float d) {
  const float inverse = 1.0f / d;
  return inverse - inverse == 0.0f ? inverse : 0.0f;
}

struct Block {
  __m256 x[4];
  __m256i magnitude[4];
  int largest;  // the bits of the largest magnitude

  explicit Block(const float* from) {
    for (int j = 0; j < 4; ++j) x[j] = _mm256_loadu_ps(from + j * kLanes), magnitude[j] = magnitudes(x[j]);
    largest = largest_lane(
        _mm256_max_epi32(_mm256_max_epi32(magnitude[0], magnitude[1]), _mm256_max_epi32(magnitude[2], magnitude[3])));
  }
};

// 32 codes as bytes in order; lanes fit 16 bits with their sign, and `pack` brings words to bytes.
template <class Pack>
inline __m256i bytes_of(const __m256i (&codes)[4], const Pack& pack) {
  const __m256i mixed = pack(_mm256_packs_epi32(codes[0], codes[1]), _mm256_packs_epi32(codes[2], codes[3]));
  return _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));  // packing works inside halves
}

void to_q8_0(const float* x, int64_t count, void* out) {
  auto* b = static_cast<uint8_t*>(out);
  const __m256 sign = _mm256_set1_ps(-0.0f), half = _mm256_set1_ps(0.5f);
  for (int64_t i = 0; i < count; i += kBlock, b += sizeof(BlockQ8_0)) {
    const Block block(x + i);
    if (block.largest >= kInfinite) {
      put_nan(b, sizeof(BlockQ8_0));
      continue;
    }
    const float d = bits_as_float(block.largest) / 127.0f;
    const __m256 inverse = _mm256_set1_ps(inverse_of(d));
    put_half(b, d);
    __m256i codes[4];
    for (int j = 0; j < 4; ++j) {
      const __m256 v = _mm256_mul_ps(block.x[j], inverse);
      codes[j] = _mm256_cvttps_epi32(_mm256_add_ps(v, _mm256_or_ps(half, _mm256_and_ps(v, sign))));  // ties away from zero
    }
    const auto pack = [](__m256i low, __m256i high) { return _mm256_packs_epi16(low, high); };
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(b + 2), bytes_of(codes, pack));
  }
}

void to_q4_0(const float* x, int64_t count, void* out) {
  auto* b = static_cast<uint8_t*>(out);
  const __m256 centre = _mm256_set1_ps(8.0f), half = _mm256_set1_ps(0.5f);
  const __m256i last = _mm256_set1_epi32(15);
  for (int64_t i = 0; i < count; i += kBlock, b += sizeof(BlockQ4_0)) {
    const Block block(x + i);
    if (block.largest >= kInfinite) {
      put_nan(b, sizeof(BlockQ4_0));
      continue;
    }
    float extreme = 0.0f;  // the first of the largest, with its sign
    if (block.largest != 0) {
      unsigned where = 0;
      for (int j = 0; j < 4; ++j) {
        const __m256i equal = _mm256_cmpeq_epi32(block.magnitude[j], _mm256_set1_epi32(block.largest));
        where |= static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(equal))) << (8 * j);
      }
      extreme = x[i + __builtin_ctz(where)];
    }
    const float d = extreme / -8.0f;
    const __m256 inverse = _mm256_set1_ps(inverse_of(d));
    put_half(b, d);
    __m256i codes[4];
    for (int j = 0; j < 4; ++j) {
      const __m256 v = _mm256_add_ps(_mm256_add_ps(_mm256_mul_ps(block.x[j], inverse), centre), half);
      codes[j] = _mm256_min_epi32(last, _mm256_cvttps_epi32(v));
    }
    const auto pack = [](__m256i low, __m256i high) { return _mm256_packus_epi16(low, high); };
    const __m256i bytes = bytes_of(codes, pack);
    const __m128i high = _mm_slli_epi16(_mm256_extracti128_si256(bytes, 1), 4);  // codes are below 16: no bit leaves its byte
    _mm_storeu_si128(reinterpret_cast<__m128i*>(b + 2), _mm_or_si128(_mm256_castsi256_si128(bytes), high));
  }
}

// clang 14 does not know the word f16c in __builtin_cpu_supports().
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace

const RowEncoders* avx2_row_encoders() {
  static const RowEncoders table{widen_bf16, largest_magnitude, to_int8, to_e4m3, to_q8_0, to_q4_0};
  static const bool usable = __builtin_cpu_supports("avx2") && has_f16c();
  return usable ? &table : nullptr;
}

}  // namespace flux2
