#include <immintrin.h>

#include "backend/cpu/gemm/kernel_x86.h"

// 32 × 32 with the tile unit: four tiles of 16 × 16 sums, two of each operand, each 16 rows of 64 bytes.
//
// The unit multiplies a tile whose rows run along k with one whose rows hold, for each of 16 columns, the next word (four
// bytes) of k. Weights take the first role, so that packing them is copying; activations, which are packed once and meet
// every weight, are transposed by words. Sums therefore stand as [n][m] and are turned after the last block of K.

namespace flux2::gemm::amx {

namespace {

constexpr int kMr = 32, kNr = 32;
constexpr int64_t kTileBytes = 1024, kRowBytes = 64, kStepBytes = 2 * kTileBytes;  // a step: 64 bytes of k for 32 rows

// Every tile whole: 16 rows of 64 bytes.
alignas(64) constexpr uint8_t kShapes[64] = {1, 0,  0, 0,  0, 0,  0, 0,  0, 0,  0,  0,  0,  0,  0,  0,  64, 0, 64,
                                             0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0,  64, 0,  0,  0,  0,  0,  0, 0,
                                             0, 0,  0, 0,  0, 0,  0, 0,  0, 0,  16, 16, 16, 16, 16, 16, 16, 16};

__mmask64 first_bytes(int64_t n) { return n >= 64 ? ~__mmask64{0} : (__mmask64{1} << n) - 1; }

// panel[step][row][64 bytes of k]. Four steps of a row at a time: reads stay in few streams, writes in few pages.
void copy_rows(int64_t bytes, const std::byte* const* row, std::byte* panel) {
  for (int64_t i = 0; i < bytes; i += 4 * kRowBytes, panel += 4 * kStepBytes)
    for (int r = 0; r < kNr; ++r)
      for (int64_t s = 0; s < 4 && i + s * kRowBytes < bytes; ++s) {
        const int64_t at = i + s * kRowBytes;
        _mm512_storeu_si512(panel + s * kStepBytes + r * kRowBytes,
                            _mm512_maskz_loadu_epi8(first_bytes(bytes - at), row[r] + at));
      }
}

// Transposes sixteen rows of sixteen words, held in registers, into out.
void store_transposed(__m512i (&v)[16], std::byte* out, int64_t stride) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // v[4 q + j] holds, in 128-bit lane l, word 4 l + j of rows 4 q … 4 q + 3.
  for (int j = 0; j < 4; ++j) {
    const __m512i even_low = _mm512_shuffle_i32x4(v[j], v[4 + j], 0x88);
    const __m512i odd_low = _mm512_shuffle_i32x4(v[j], v[4 + j], 0xdd);
    const __m512i even_high = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], 0x88);
    const __m512i odd_high = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], 0xdd);
    _mm512_storeu_si512(out + j * stride, _mm512_shuffle_i32x4(even_low, even_high, 0x88));
    _mm512_storeu_si512(out + (4 + j) * stride, _mm512_shuffle_i32x4(odd_low, odd_high, 0x88));
    _mm512_storeu_si512(out + (8 + j) * stride, _mm512_shuffle_i32x4(even_low, even_high, 0xdd));
    _mm512_storeu_si512(out + (12 + j) * stride, _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd));
  }
}

// panel[step][half][word of k][16 rows of that half]
void transpose_rows(int64_t bytes, const std::byte* const* row, std::byte* panel) {
  for (int64_t i = 0; i < bytes; i += kRowBytes)
    for (int half = 0; half < kMr; half += 16, panel += kTileBytes) {
      __m512i v[16];
      for (int r = 0; r < 16; ++r) v[r] = _mm512_maskz_loadu_epi8(first_bytes(bytes - i), row[half + r] + i);
      store_transposed(v, panel, kRowBytes);
    }
}

// Until the last pass the driver's tile is four tiles of the unit in a row, each [n][m]; then it is f32 by rows of m.
template <class T>
void to_rows(const std::byte* sums, float* tile) {
  for (int q = 0; q < 4; ++q) {
    __m512i v[16];
    for (int r = 0; r < 16; ++r) {
      v[r] = _mm512_load_si512(sums + q * kTileBytes + r * kRowBytes);
      if constexpr (sizeof(T) == 1) v[r] = _mm512_castps_si512(_mm512_cvtepi32_ps(v[r]));
    }
    store_transposed(v, reinterpret_cast<std::byte*>(tile + (q % 2) * 16 * kNr + (q / 2) * 16), kNr * 4);
  }
}

template <class T>
void pack_a(int64_t k, const T* const* rows, void* panel) {
  transpose_rows(k * static_cast<int64_t>(sizeof(T)), reinterpret_cast<const std::byte* const*>(rows),
                 static_cast<std::byte*>(panel));
}

template <class T>
void pack_b(int64_t k, const T* const* rows, void* panel) {
  copy_rows(k * static_cast<int64_t>(sizeof(T)), reinterpret_cast<const std::byte* const*>(rows), static_cast<std::byte*>(panel));
}

// sums[to] += tile[b] · tile[a]; the numbers are part of the instructions.
#define FLUX2_MULTIPLY(to, b, a)                        \
  if constexpr (sizeof(T) == 1) _tile_dpbssd(to, b, a); \
  else _tile_dpbf16ps(to, b, a);

template <class T>
void run(int64_t k, const void* panel_a, const void* panel_b, float* tile, Pass pass) {
  const auto *a = static_cast<const std::byte*>(panel_a), *b = static_cast<const std::byte*>(panel_b);
  auto* sums = reinterpret_cast<std::byte*>(tile);
  if (pass.first) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums, kRowBytes);
    _tile_loadd(1, sums + kTileBytes, kRowBytes);
    _tile_loadd(2, sums + 2 * kTileBytes, kRowBytes);
    _tile_loadd(3, sums + 3 * kTileBytes, kRowBytes);
  }
  const std::byte* end = a + k * static_cast<int64_t>(sizeof(T)) / kRowBytes * kStepBytes;
  // The panel of a meets several of b in turn and should stay in the first cache level; b only passes through.
  for (; a != end; a += kStepBytes, b += kStepBytes) {
    _tile_stream_loadd(4, b, kRowBytes);
    _tile_loadd(6, a, kRowBytes);
    FLUX2_MULTIPLY(0, 4, 6)
    _tile_loadd(7, a + kTileBytes, kRowBytes);
    FLUX2_MULTIPLY(1, 4, 7)
    _tile_stream_loadd(5, b + kTileBytes, kRowBytes);
    FLUX2_MULTIPLY(2, 5, 6)
    FLUX2_MULTIPLY(3, 5, 7)
  }
  alignas(64) std::byte turned[4 * kTileBytes];
  std::byte* to = pass.last ? turned : sums;
  _tile_stored(0, to, kRowBytes);
  _tile_stored(1, to + kTileBytes, kRowBytes);
  _tile_stored(2, to + 2 * kTileBytes, kRowBytes);
  _tile_stored(3, to + 3 * kTileBytes, kRowBytes);
  if (pass.last) to_rows<T>(turned, tile);
}

// Pixels of an image take the role of weights, because their rows run along k where they lie; the weights, which are packed once,
// are transposed instead. The sums come out by rows.
static_assert(kMr == kNr);
void run_taps(const TapRows& rows, const void* panel_b, float* tile) {
  const auto* b = static_cast<const std::byte*>(panel_b);
  const int64_t stride = rows.row_bytes, bytes = rows.k * 2;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t t = 0; t < rows.taps; ++t) {
    const std::byte* a = rows.first + rows.offsets[t];
    for (int64_t i = 0; i < bytes; i += kRowBytes, b += kStepBytes) {
      _tile_loadd(4, a + i, stride);
      _tile_loadd(6, b, kRowBytes);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, b + kTileBytes, kRowBytes);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, a + 16 * stride + i, stride);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, tile, 4 * kNr);
  _tile_stored(1, tile + 16, 4 * kNr);
  _tile_stored(2, tile + 16 * kNr, 4 * kNr);
  _tile_stored(3, tile + 16 * kNr + 16, 4 * kNr);
}

template <class T>
double ceiling(int64_t iterations) {
  _tile_zero(6);
  _tile_zero(7);
  for (int64_t i = 0; i < iterations; ++i) {
    FLUX2_MULTIPLY(0, 6, 7)
    FLUX2_MULTIPLY(1, 6, 7)
    FLUX2_MULTIPLY(2, 6, 7)
    FLUX2_MULTIPLY(3, 6, 7)
  }
  return static_cast<double>(iterations) * 4 * 2 * 16 * 16 * static_cast<double>(kRowBytes / sizeof(T));
}

void begin() { _tile_loadconfig(kShapes); }
void end() { _tile_release(); }

template <class T>
constexpr MicroKernel<T> kernel(const char* name, const char* instruction, ConvertRow<T> convert, TapKernel<T> in_place) {
  return {{.name = name,
           .mr = kMr,
           .nr = kNr,
           .kr = static_cast<int>(kRowBytes / sizeof(T)),
           .a_step = kStepBytes,
           .b_step = kStepBytes,
           .columns = 384,
           .run = run<T>,
           .instruction = instruction,
           .ceiling = ceiling<T>,
           .begin = begin,
           .end = end},
          pack_a<T>,
          pack_b<T>,
          convert,
          in_place};
}

}  // namespace

constinit const MicroKernel<bf16> kBf16 =
    kernel<bf16>("amx bf16 32x32", "TDPBF16PS", avx512_bf16::convert, {run_taps, pack_a<bf16>});
constinit const MicroKernel<int8_t> kInt8 = kernel<int8_t>("amx int8 32x32", "TDPBSSD", nullptr, {});

}  // namespace flux2::gemm::amx
