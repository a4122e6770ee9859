#include "weights/row_encoders.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace flux2 {

namespace {

// Through a small aligned copy, so that the loop becomes vector code.
void widen_bf16(const void* values, int64_t count, float* out) {
  constexpr int64_t kPiece = 256;
  const auto* bytes = static_cast<const std::byte*>(values);
  for (int64_t i = 0; i < count; i += kPiece) {
    bf16 piece[kPiece];
    const int64_t n = std::min(kPiece, count - i);
    std::memcpy(piece, bytes + 2 * i, static_cast<size_t>(2 * n));
    for (int64_t j = 0; j < n; ++j) out[i + j] = to_float(piece[j]);
  }
}

// Magnitudes of floats order like their bits, and integers have no NaN to break a vector maximum.
float largest_magnitude(const float* x, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  return std::bit_cast<float>(largest);
}

// The sum's last bits are the integer. No branches on values, so that the loops become vector code.
void to_int8(const float* x, int64_t count, float factor, int8_t* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int8_t>(std::bit_cast<uint32_t>(x[i] * factor + 0x1.8p23f) & 0xffu);
}

void to_e4m3(const float* x, int64_t count, float factor, uint8_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[i] * factor), magnitude = bits & 0x7fffffffu;
    const uint32_t normal = ((magnitude + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20) - (120u << 3);
    const uint32_t tiny = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f) & 15u;  // in steps of 2⁻⁹
    out[i] = static_cast<uint8_t>((magnitude < 0x3c800000u ? tiny : normal) | (bits >> 24 & 0x80u));
  }
}

}  // namespace

const RowEncoders& portable_row_encoders() {
  static const RowEncoders table{widen_bf16, largest_magnitude, to_int8, to_e4m3, portable_q8_0, portable_q4_0};
  return table;
}

const RowEncoders& row_encoders() {
  static const RowEncoders& best = avx2_row_encoders() ? *avx2_row_encoders() : portable_row_encoders();
  return best;
}

}  // namespace flux2
