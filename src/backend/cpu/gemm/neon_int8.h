#pragma once

#include <arm_neon.h>

#include <cstdint>

// What the kernels of SMMLA share. Included only by files compiled for the same instruction set.

namespace flux2::gemm::neon_int8 {

// The rate of SMMLA, as TileKernel wants it.
double ceiling(int64_t iterations);

// panel[step of 8][row][8]: 16 consecutive bytes are the 2×8 block of two neighbouring rows that SMMLA takes.
template <int rows>
void pack(int64_t k, const int8_t* const* row, void* panel) {
  auto* out = static_cast<int8_t*>(panel);
  int64_t i = 0;
  for (; i + 16 <= k; i += 16, out += 16 * rows) {
    for (int r = 0; r < rows; r += 2) {
      const int64x2_t even = vreinterpretq_s64_s8(vld1q_s8(row[r] + i)), odd = vreinterpretq_s64_s8(vld1q_s8(row[r + 1] + i));
      vst1q_s8(out + 8 * r, vreinterpretq_s8_s64(vzip1q_s64(even, odd)));
      vst1q_s8(out + 8 * (rows + r), vreinterpretq_s8_s64(vzip2q_s64(even, odd)));
    }
  }
  for (; i < k; i += 8, out += 8 * rows)
    for (int r = 0; r < rows; ++r)
      for (int j = 0; j < 8; ++j) out[8 * r + j] = i + j < k ? row[r][i + j] : int8_t{0};
}

}  // namespace flux2::gemm::neon_int8
