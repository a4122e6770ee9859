#include "weights/round_eight_bit.h"

#include <bit>

namespace flux2 {

// The sum's last bits are the integer. No branches on values, so that the loops become vector code.
void round_to_int8(const float* x, int64_t count, float factor, int8_t* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int8_t>(std::bit_cast<uint32_t>(x[i] * factor + 0x1.8p23f) & 0xffu);
}

void round_to_e4m3(const float* x, int64_t count, float factor, uint8_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[i] * factor), magnitude = bits & 0x7fffffffu;
    const uint32_t normal = ((magnitude + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20) - (120u << 3);
    const uint32_t tiny = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f) & 15u;  // in steps of 2⁻⁹
    out[i] = static_cast<uint8_t>((magnitude < 0x3c800000u ? tiny : normal) | (bits >> 24 & 0x80u));
  }
}

}  // namespace flux2
