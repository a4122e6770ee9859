#include <immintrin.h>

#include <cstring>

#include "backend/cpu/gemm/kernel_x86.h"

// int8 with the 256-bit VPDPBUSD of processors without AVX-512; see kernel_avx512_vnni.cpp for the unsigned factor.

namespace flux2::gemm::avx_vnni {

namespace {

constexpr int kNr = 16;

// panel[k / 4][row][4], zeros past the end of k; every byte changed by `flip`.
template <int rows>
void pack_words(int64_t k, const int8_t* const* row, uint8_t flip, int8_t* panel) {
  constexpr int kWhole = rows / 4 * 4;
  const __m128 flips = _mm_castsi128_ps(_mm_set1_epi8(static_cast<char>(flip)));
  const auto load = [&](int r, int64_t i) {
    return _mm_xor_ps(_mm_castsi128_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row[r] + i))), flips);
  };
  int64_t i = 0;
  for (; i + 16 <= k; i += 16, panel += 16 * rows) {
    auto* out = reinterpret_cast<float*>(panel);
    for (int r = 0; r < kWhole; r += 4) {
      __m128 r0 = load(r, i), r1 = load(r + 1, i), r2 = load(r + 2, i), r3 = load(r + 3, i);
      _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
      _mm_storeu_ps(out + r, r0);
      _mm_storeu_ps(out + rows + r, r1);
      _mm_storeu_ps(out + 2 * rows + r, r2);
      _mm_storeu_ps(out + 3 * rows + r, r3);
    }
    for (int r = kWhole; r < rows; ++r) {
      float words[4];
      _mm_storeu_ps(words, load(r, i));
      for (int j = 0; j < 4; ++j) out[j * rows + r] = words[j];
    }
  }
  for (; i < k; i += 4, panel += 4 * rows)
    for (int r = 0; r < rows; ++r)
      for (int j = 0; j < 4; ++j)
        panel[4 * r + j] = static_cast<int8_t>(static_cast<uint8_t>(i + j < k ? row[r][i + j] : 0) ^ flip);
}

__m256i load(const void* at) { return _mm256_loadu_si256(static_cast<const __m256i*>(at)); }
void store(void* at, __m256i values) { _mm256_storeu_si256(static_cast<__m256i*>(at), values); }

// −128 · the sum over k of each of kNr rows packed in words.
void corrections(int64_t k, const int8_t* words, void* out) {
  const __m256i ones = _mm256_set1_epi8(1), zero = _mm256_setzero_si256();
  __m256i sum0 = zero, sum1 = zero;
  for (int64_t i = 0; i < k; i += 4, words += 4 * kNr) {
    sum0 = _mm256_dpbusd_avx_epi32(sum0, ones, load(words));
    sum1 = _mm256_dpbusd_avx_epi32(sum1, ones, load(words + 32));
  }
  store(out, _mm256_sub_epi32(zero, _mm256_slli_epi32(sum0, 7)));
  store(static_cast<int32_t*>(out) + 8, _mm256_sub_epi32(zero, _mm256_slli_epi32(sum1, 7)));
}

__m256i four_bytes(const int8_t* at) {
  int32_t word;
  std::memcpy(&word, at, sizeof word);
  return _mm256_set1_epi32(word);
}

// The sums as the pass leaves them: f32 after the last.
__m256i finished(__m256i sums, Pass pass) { return pass.last ? _mm256_castps_si256(_mm256_cvtepi32_ps(sums)) : sums; }

double ceiling(int64_t iterations) {
  __m256i factor = _mm256_setzero_si256(), sum[12] = {};
  asm volatile("" : "+x"(factor));
  for (__m256i& s : sum) asm volatile("" : "+x"(s));  // or equal sums would be taken for one
  for (int64_t i = 0; i < iterations; ++i)
    for (__m256i& s : sum) s = _mm256_dpbusd_avx_epi32(s, factor, factor);
  for (__m256i& s : sum) asm volatile("" : : "x"(s));
  return static_cast<double>(iterations) * 12 * 64;
}

// One scale a row: 6 × 16, as in f32.
constexpr int kMr = 6;
constexpr int kExtra = kNr * 4;  // of a panel of b, before the words

void pack_a(int64_t k, const int8_t* const* rows, void* panel) { pack_words<kMr>(k, rows, 0x80, static_cast<int8_t*>(panel)); }

void pack_b(int64_t k, const int8_t* const* rows, void* panel) {
  auto* words = static_cast<int8_t*>(panel) + kExtra;
  pack_words<kNr>(k, rows, 0, words);
  corrections(k, words, panel);
}

#define FLUX2_LOAD(i)                                                                     \
  __m256i c##i##0 = pass.first ? start0 : _mm256_add_epi32(start0, load(sums + i * kNr)); \
  __m256i c##i##1 = pass.first ? start1 : _mm256_add_epi32(start1, load(sums + i * kNr + 8));
#define FLUX2_ROW(i)                                    \
  {                                                     \
    const __m256i ai = four_bytes(a + 4 * i);           \
    c##i##0 = _mm256_dpbusd_avx_epi32(c##i##0, ai, b0); \
    c##i##1 = _mm256_dpbusd_avx_epi32(c##i##1, ai, b1); \
  }
#define FLUX2_STORE(i)                            \
  store(sums + i * kNr, finished(c##i##0, pass)); \
  store(sums + i * kNr + 8, finished(c##i##1, pass));
#define FLUX2_ROWS(what) what(0) what(1) what(2) what(3) what(4) what(5)

void run(int64_t k, const void* panel_a, const void* panel_b, float* tile, Pass pass) {
  const auto *a = static_cast<const int8_t*>(panel_a), *b = static_cast<const int8_t*>(panel_b);
  auto* sums = reinterpret_cast<int32_t*>(tile);
  const __m256i start0 = load(b), start1 = load(b + 32);
  b += kExtra;
  FLUX2_ROWS(FLUX2_LOAD)
  for (int64_t i = 0; i < k; i += 4, a += 4 * kMr, b += 4 * kNr) {
    const __m256i b0 = load(b), b1 = load(b + 32);
    FLUX2_ROWS(FLUX2_ROW)
  }
  FLUX2_ROWS(FLUX2_STORE)
}

// A scale for every 32 weights: 16 × 16 in two halves of eight columns. A block of weights of one half fills eight
// registers and meets four rows at a time; the f32 sums pass through the first cache level, which has time for them.
constexpr int kBlockMr = 16, kTogether = 4;
constexpr int64_t kBlockBytes = kNr * (4 + 4 + kScaleBlock);  // scales, corrections, words

// panel[block][row][32]
void pack_block_a(int64_t k, const int8_t* const* row, void* panel) {
  auto* out = static_cast<int8_t*>(panel);
  for (int64_t i = 0; i < k; i += kScaleBlock)
    for (int r = 0; r < kBlockMr; ++r, out += kScaleBlock) store(out, _mm256_xor_si256(load(row[r] + i), _mm256_set1_epi8(-128)));
}

void pack_block_b(int64_t k, const int8_t* const* row, const float* const* scales, void* panel) {
  auto* out = static_cast<std::byte*>(panel);
  for (int64_t block = 0; block < k / kScaleBlock; ++block, out += kBlockBytes) {
    const int8_t* rows[kNr];
    for (int r = 0; r < kNr; ++r) {
      rows[r] = row[r] + block * kScaleBlock;
      reinterpret_cast<float*>(out)[r] = scales[r][block];
    }
    auto* words = reinterpret_cast<int8_t*>(out + 8 * kNr);
    pack_words<kNr>(kScaleBlock, rows, 0, words);
    corrections(kScaleBlock, words, out + 4 * kNr);
  }
}

// One block of K against eight columns.
void run_half(const int8_t* a, const int8_t* b, float* sums) {
  const __m256 scale = _mm256_loadu_ps(reinterpret_cast<const float*>(b));
  const __m256i start = load(b + 64);
  __m256i weights[8];
  for (int i = 0; i < 8; ++i) weights[i] = load(b + 128 + 64 * i);
  for (int r = 0; r < kBlockMr; r += kTogether, a += kTogether * kScaleBlock, sums += kTogether * kNr) {
    __m256i sum[kTogether];
    for (__m256i& row : sum) row = start;
    for (int i = 0; i < 8; ++i)
      for (int j = 0; j < kTogether; ++j)
        sum[j] = _mm256_dpbusd_avx_epi32(sum[j], four_bytes(a + j * kScaleBlock + 4 * i), weights[i]);
    for (int j = 0; j < kTogether; ++j) {
      float* to = sums + j * kNr;
      _mm256_storeu_ps(to, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[j]), scale, _mm256_loadu_ps(to)));
    }
  }
}

void run_blocks(int64_t k, const void* panel_a, const void* panel_b, float* tile, Pass pass) {
  const auto *a = static_cast<const int8_t*>(panel_a), *b = static_cast<const int8_t*>(panel_b);
  if (pass.first)
    for (int i = 0; i < kBlockMr * kNr; i += 8) _mm256_storeu_ps(tile + i, _mm256_setzero_ps());
  for (int64_t i = 0; i < k; i += kScaleBlock, a += kBlockMr * kScaleBlock, b += kBlockBytes) {
    run_half(a, b, tile);
    run_half(a, b + 32, tile + 8);
  }
}

}  // namespace

const MicroKernel<int8_t> kInt8 = {{.name = "avx-vnni int8 6x16",
                                    .mr = kMr,
                                    .nr = kNr,
                                    .kr = 4,
                                    .a_step = 4 * kMr,
                                    .b_step = 4 * kNr,
                                    .b_extra = kExtra,
                                    .run = run,
                                    .instruction = "VPDPBUSD, 256 bits",
                                    .ceiling = ceiling},
                                   pack_a,
                                   pack_b};
const BlockKernel kBlocks = {{.name = "avx-vnni blocks 16x16",
                              .mr = kBlockMr,
                              .nr = kNr,
                              .kr = kScaleBlock,
                              .a_step = kBlockMr * kScaleBlock,
                              .b_step = kBlockBytes,
                              .run = run_blocks,
                              .instruction = "VPDPBUSD, 256 bits",
                              .ceiling = ceiling},
                             pack_block_a,
                             pack_block_b};

}  // namespace flux2::gemm::avx_vnni
