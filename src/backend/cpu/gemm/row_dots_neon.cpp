#include "backend/cpu/gemm/row_dots_neon.h"

#include <arm_neon.h>

#include <cstring>

namespace flux2::gemm::neon_rows {

namespace {

struct StoredQ8 {
  __fp16 scale;
  int8_t q[32];
};
struct StoredQ4 {
  __fp16 scale;
  uint8_t q[16];  // element i in the low half of byte i, element 16 + i in its high half
};
static_assert(sizeof(StoredQ8) == 34 && sizeof(StoredQ4) == 18);

int32x4_t dot32(const int8_t* w, const int8_t* x) {
  const int32x4_t low = vdotq_s32(vdupq_n_s32(0), vld1q_s8(w), vld1q_s8(x));
  return vdotq_s32(low, vld1q_s8(w + 16), vld1q_s8(x + 16));
}

// Two blocks at a time: their sums do not wait for each other.
float dot_int8(const void* weights, const DotRow& x, int64_t k) {
  const auto* w = static_cast<const int8_t*>(weights);
  float32x4_t even = vdupq_n_f32(0), odd = vdupq_n_f32(0);
  const int64_t blocks = k / kDotBlock;
  int64_t b = 0;
  for (; b + 4 <= blocks; b += 4) {
    const float32x4_t scales = vld1q_f32(x.scales + b);
    const int8_t *from = w + kDotBlock * b, *with = x.values + kDotBlock * b;
    even = vfmaq_laneq_f32(even, vcvtq_f32_s32(dot32(from, with)), scales, 0);
    odd = vfmaq_laneq_f32(odd, vcvtq_f32_s32(dot32(from + 32, with + 32)), scales, 1);
    even = vfmaq_laneq_f32(even, vcvtq_f32_s32(dot32(from + 64, with + 64)), scales, 2);
    odd = vfmaq_laneq_f32(odd, vcvtq_f32_s32(dot32(from + 96, with + 96)), scales, 3);
  }
  for (; b < blocks; ++b)
    even = vfmaq_n_f32(even, vcvtq_f32_s32(dot32(w + kDotBlock * b, x.values + kDotBlock * b)), x.scales[b]);
  float sum = vaddvq_f32(vaddq_f32(even, odd));
  if (const int64_t rest = k - kDotBlock * blocks; rest > 0) {
    int32_t last = 0;
    for (int64_t i = kDotBlock * blocks; i < k; ++i) last += w[i] * x.values[i];
    sum += static_cast<float>(last) * x.scales[blocks];
  }
  return sum;
}

float dot_q8_0(const void* weights, const DotRow& x, int64_t k) {
  const auto* w = static_cast<const StoredQ8*>(weights);
  float32x4_t even = vdupq_n_f32(0), odd = vdupq_n_f32(0);
  const int64_t blocks = k / kDotBlock;
  int64_t b = 0;
  for (; b + 2 <= blocks; b += 2) {
    even =
        vfmaq_n_f32(even, vcvtq_f32_s32(dot32(w[b].q, x.values + kDotBlock * b)), static_cast<float>(w[b].scale) * x.scales[b]);
    odd = vfmaq_n_f32(odd, vcvtq_f32_s32(dot32(w[b + 1].q, x.values + kDotBlock * (b + 1))),
                      static_cast<float>(w[b + 1].scale) * x.scales[b + 1]);
  }
  for (; b < blocks; ++b)
    even =
        vfmaq_n_f32(even, vcvtq_f32_s32(dot32(w[b].q, x.values + kDotBlock * b)), static_cast<float>(w[b].scale) * x.scales[b]);
  return vaddvq_f32(vaddq_f32(even, odd));
}

// The integers are 0 … 15 and stand for −8 … 7; the offset is subtracted with the sum of the activations.
int32x4_t dot_nibbles(const uint8_t* q, const int8_t* x) {
  const uint8x16_t both = vld1q_u8(q);
  const int8x16_t low = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15))), high = vreinterpretq_s8_u8(vshrq_n_u8(both, 4));
  return vdotq_s32(vdotq_s32(vdupq_n_s32(0), low, vld1q_s8(x)), high, vld1q_s8(x + 16));
}

// The scales of four blocks, put together in an ordinary register: from lane to lane it took longer.
float32x4_t scales_of_four(const StoredQ4* w) {
  uint64_t bits = 0;
  for (int i = 0; i < 4; ++i) {
    uint16_t half;
    std::memcpy(&half, &w[i].scale, sizeof half);
    bits |= static_cast<uint64_t>(half) << 16 * i;
  }
  return vcvt_f32_f16(vreinterpret_f16_u64(vcreate_u64(bits)));
}

// Four blocks at a time. Adding neighbours turns their four registers into one with a sum for each block, so that the conversion
// and the multiplication with the scales happen once. One core of Neoverse V1: 15.7 GB/s, where int8 reaches 24 and reading 25.
float dot_q4_0(const void* weights, const DotRow& x, int64_t k) {
  const auto* w = static_cast<const StoredQ4*>(weights);
  float32x4_t sum = vdupq_n_f32(0), offsets = vdupq_n_f32(0);
  const int64_t blocks = k / kDotBlock;
  int64_t b = 0;
  for (; b + 4 <= blocks; b += 4) {
    const float32x4_t own = scales_of_four(w + b);
    const int8_t* with = x.values + kDotBlock * b;
    const int32x4_t first = vpaddq_s32(dot_nibbles(w[b].q, with), dot_nibbles(w[b + 1].q, with + 32));
    const int32x4_t second = vpaddq_s32(dot_nibbles(w[b + 2].q, with + 64), dot_nibbles(w[b + 3].q, with + 96));
    sum = vfmaq_f32(sum, vcvtq_f32_s32(vpaddq_s32(first, second)), vmulq_f32(own, vld1q_f32(x.scales + b)));
    offsets = vfmaq_f32(offsets, own, vld1q_f32(x.sums + b));
  }
  float rest = 0, rest_offsets = 0;
  for (; b < blocks; ++b) {
    const auto own = static_cast<float>(w[b].scale);
    rest += own * x.scales[b] * static_cast<float>(vaddvq_s32(dot_nibbles(w[b].q, x.values + kDotBlock * b)));
    rest_offsets += own * x.sums[b];
  }
  return vaddvq_f32(sum) + rest - 8.0f * (vaddvq_f32(offsets) + rest_offsets);
}

}  // namespace

const RowDots kDots = {.int8 = dot_int8, .q8_0 = dot_q8_0, .q4_0 = dot_q4_0};

}  // namespace flux2::gemm::neon_rows
