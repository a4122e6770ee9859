#include <immintrin.h>

#include <cstring>

#include "backend/cpu/gemm/kernel_x86.h"

// int8 with VPDPBUSD, which adds the products of four neighbouring k to each of sixteen int32 sums. Its first factor is
// unsigned: activations go in as x + 128, and a panel of weights carries −128 · Σ w, from which its sums start. On the way
// they may leave int32; modulo 2^32 they come back.

namespace flux2::gemm::avx512_vnni {

namespace {

constexpr int kNr = 32;

// panel[k / 4][row][4], zeros past the end of k; every byte changed by `flip`.
template <int rows>
void pack_words(int64_t k, const int8_t* const* row, uint8_t flip, int8_t* panel) {
  const __m128 flips = _mm_castsi128_ps(_mm_set1_epi8(static_cast<char>(flip)));
  const auto load = [&](int r, int64_t i) {
    return _mm_xor_ps(_mm_castsi128_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row[r] + i))), flips);
  };
  int64_t i = 0;
  for (; i + 16 <= k; i += 16, panel += 16 * rows) {
    auto* out = reinterpret_cast<float*>(panel);
    for (int r = 0; r < rows; r += 4) {
      __m128 r0 = load(r, i), r1 = load(r + 1, i), r2 = load(r + 2, i), r3 = load(r + 3, i);
      _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
      _mm_storeu_ps(out + r, r0);
      _mm_storeu_ps(out + rows + r, r1);
      _mm_storeu_ps(out + 2 * rows + r, r2);
      _mm_storeu_ps(out + 3 * rows + r, r3);
    }
  }
  for (; i < k; i += 4, panel += 4 * rows)
    for (int r = 0; r < rows; ++r)
      for (int j = 0; j < 4; ++j)
        panel[4 * r + j] = static_cast<int8_t>(static_cast<uint8_t>(i + j < k ? row[r][i + j] : 0) ^ flip);
}

// −128 · the sum over k of each of kNr rows packed in words.
void corrections(int64_t k, const int8_t* words, void* out) {
  const __m512i ones = _mm512_set1_epi8(1);
  __m512i sum0 = _mm512_setzero_si512(), sum1 = sum0;
  for (int64_t i = 0; i < k; i += 4, words += 4 * kNr) {
    sum0 = _mm512_dpbusd_epi32(sum0, ones, _mm512_loadu_si512(words));
    sum1 = _mm512_dpbusd_epi32(sum1, ones, _mm512_loadu_si512(words + 2 * kNr));
  }
  const __m512i zero = _mm512_setzero_si512();
  _mm512_storeu_si512(out, _mm512_sub_epi32(zero, _mm512_slli_epi32(sum0, 7)));
  _mm512_storeu_si512(static_cast<int32_t*>(out) + 16, _mm512_sub_epi32(zero, _mm512_slli_epi32(sum1, 7)));
}

__m512i four_bytes(const int8_t* at) {
  int32_t word;
  std::memcpy(&word, at, sizeof word);
  return _mm512_set1_epi32(word);
}

// The sums as the pass leaves them: f32 after the last.
__m512i finished(__m512i sums, Pass pass) { return pass.last ? _mm512_castps_si512(_mm512_cvtepi32_ps(sums)) : sums; }

double ceiling(int64_t iterations) {
  __m512i factor = _mm512_setzero_si512(), sum[16] = {};
  asm volatile("" : "+v"(factor));
  for (__m512i& s : sum) asm volatile("" : "+v"(s));  // or equal sums would be taken for one
  for (int64_t i = 0; i < iterations; ++i)
    for (__m512i& s : sum) s = _mm512_dpbusd_epi32(s, factor, factor);
  for (__m512i& s : sum) asm volatile("" : : "v"(s));
  return static_cast<double>(iterations) * 16 * 128;
}

// One scale a row: 12 × 32, as in f32.
constexpr int kMr = 12;
constexpr int kExtra = kNr * 4;  // of a panel of b, before the words

void pack_a(int64_t k, const int8_t* const* rows, void* panel) { pack_words<kMr>(k, rows, 0x80, static_cast<int8_t*>(panel)); }

void pack_b(int64_t k, const int8_t* const* rows, void* panel) {
  auto* words = static_cast<int8_t*>(panel) + kExtra;
  pack_words<kNr>(k, rows, 0, words);
  corrections(k, words, panel);
}

#define FLUX2_LOAD(i)                                                                                   \
  __m512i c##i##0 = pass.first ? start0 : _mm512_add_epi32(start0, _mm512_loadu_si512(sums + i * kNr)); \
  __m512i c##i##1 = pass.first ? start1 : _mm512_add_epi32(start1, _mm512_loadu_si512(sums + i * kNr + 16));
#define FLUX2_ROW(i)                                \
  {                                                 \
    const __m512i ai = four_bytes(a + 4 * i);       \
    c##i##0 = _mm512_dpbusd_epi32(c##i##0, ai, b0); \
    c##i##1 = _mm512_dpbusd_epi32(c##i##1, ai, b1); \
  }
#define FLUX2_STORE(i)                                          \
  _mm512_storeu_si512(sums + i * kNr, finished(c##i##0, pass)); \
  _mm512_storeu_si512(sums + i * kNr + 16, finished(c##i##1, pass));
#define FLUX2_ROWS(what) what(0) what(1) what(2) what(3) what(4) what(5) what(6) what(7) what(8) what(9) what(10) what(11)

void run(int64_t k, const void* panel_a, const void* panel_b, float* tile, Pass pass) {
  const auto *a = static_cast<const int8_t*>(panel_a), *b = static_cast<const int8_t*>(panel_b);
  auto* sums = reinterpret_cast<int32_t*>(tile);
  const __m512i start0 = _mm512_loadu_si512(b), start1 = _mm512_loadu_si512(b + 64);
  b += kExtra;
  FLUX2_ROWS(FLUX2_LOAD)
  for (int64_t i = 0; i < k; i += 4, a += 4 * kMr, b += 4 * kNr) {
    const __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 64);
    FLUX2_ROWS(FLUX2_ROW)
  }
  FLUX2_ROWS(FLUX2_STORE)
}

// A scale for every 32 weights: 16 × 32. A block of weights fills sixteen registers and meets four rows at a
// time; the f32 sums pass through the first cache level, which has time for them.
constexpr int kBlockMr = 16, kTogether = 4;
constexpr int64_t kBlockBytes = kNr * (4 + 4 + kScaleBlock);  // scales, corrections, words

// panel[block][row][32]
void pack_block_a(int64_t k, const int8_t* const* row, void* panel) {
  auto* out = static_cast<int8_t*>(panel);
  for (int64_t i = 0; i < k; i += kScaleBlock)
    for (int r = 0; r < kBlockMr; ++r, out += kScaleBlock) {
      const __m256i values = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row[r] + i));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_xor_si256(values, _mm256_set1_epi8(-128)));
    }
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

void run_blocks(int64_t k, const void* panel_a, const void* panel_b, float* tile, Pass pass) {
  const auto *a = static_cast<const int8_t*>(panel_a), *b = static_cast<const int8_t*>(panel_b);
  if (pass.first)
    for (int i = 0; i < kBlockMr * kNr; i += 16) _mm512_storeu_ps(tile + i, _mm512_setzero_ps());
  for (int64_t block = 0; block < k / kScaleBlock; ++block, b += kBlockBytes) {
    const __m512 scale0 = _mm512_loadu_ps(b), scale1 = _mm512_loadu_ps(b + 64);
    const __m512i start0 = _mm512_loadu_si512(b + 128), start1 = _mm512_loadu_si512(b + 192);
    __m512i weights[16];
    for (int i = 0; i < 16; ++i) weights[i] = _mm512_loadu_si512(b + 256 + 64 * i);
    float* sums = tile;
    for (int r = 0; r < kBlockMr; r += kTogether, a += kTogether * kScaleBlock, sums += kTogether * kNr) {
      __m512i sum[kTogether][2];
      for (auto& row : sum) row[0] = start0, row[1] = start1;
      for (int i = 0; i < 8; ++i)
        for (int j = 0; j < kTogether; ++j) {
          const __m512i x = four_bytes(a + j * kScaleBlock + 4 * i);
          sum[j][0] = _mm512_dpbusd_epi32(sum[j][0], x, weights[2 * i]);
          sum[j][1] = _mm512_dpbusd_epi32(sum[j][1], x, weights[2 * i + 1]);
        }
      for (int j = 0; j < kTogether; ++j) {
        float* to = sums + j * kNr;
        _mm512_storeu_ps(to, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[j][0]), scale0, _mm512_loadu_ps(to)));
        _mm512_storeu_ps(to + 16, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[j][1]), scale1, _mm512_loadu_ps(to + 16)));
      }
    }
  }
}

}  // namespace

const MicroKernel<int8_t> kInt8 = {{.name = "avx512-vnni int8 12x32",
                                    .mr = kMr,
                                    .nr = kNr,
                                    .kr = 4,
                                    .a_step = 4 * kMr,
                                    .b_step = 4 * kNr,
                                    .b_extra = kExtra,
                                    .run = run,
                                    .instruction = "VPDPBUSD, 512 bits",
                                    .ceiling = ceiling},
                                   pack_a,
                                   pack_b};
const BlockKernel kBlocks = {{.name = "avx512-vnni blocks 16x32",
                              .mr = kBlockMr,
                              .nr = kNr,
                              .kr = kScaleBlock,
                              .a_step = kBlockMr * kScaleBlock,
                              .b_step = kBlockBytes,
                              .run = run_blocks,
                              .instruction = "VPDPBUSD, 512 bits",
                              .ceiling = ceiling},
                             pack_block_a,
                             pack_block_b};

}  // namespace flux2::gemm::avx512_vnni
