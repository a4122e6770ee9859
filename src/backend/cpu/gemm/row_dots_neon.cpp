#include "backend/cpu/gemm/row_dots_neon.h"

#include <arm_neon.h>

#include <cstring>
#include <type_traits>

#include "tensor/blocks.h"

namespace flux2::gemm::neon_rows {

namespace {

struct Bytes {
  int8x16_t low, high;
};
struct Lanes {
  int32x4_t low, high;
};
struct Floats {
  float32x4_t low, high;
};

[[gnu::always_inline]] inline int8x16_t signed_bytes(uint8x16_t v) { return vreinterpretq_s8_u8(v); }
[[gnu::always_inline]] inline uint8x16_t unsigned_bytes(int8x16_t v) { return vreinterpretq_u8_s8(v); }

[[gnu::always_inline]] inline Bytes load(const void* at) {
  const auto* bytes = static_cast<const int8_t*>(at);
  return {vld1q_s8(bytes), vld1q_s8(bytes + 16)};
}
[[gnu::always_inline]] inline Bytes all_of(int byte) {
  const int8x16_t v = vdupq_n_s8(static_cast<int8_t>(byte));
  return {v, v};
}
[[gnu::always_inline]] inline Bytes either(Bytes a, Bytes b) { return {vorrq_s8(a.low, b.low), vorrq_s8(a.high, b.high)}; }
[[gnu::always_inline]] inline Bytes minus(Bytes a, Bytes b) { return {vsubq_s8(a.low, b.low), vsubq_s8(a.high, b.high)}; }
[[gnu::always_inline]] inline Bytes equal(Bytes a, Bytes b) {
  return {signed_bytes(vceqq_s8(a.low, b.low)), signed_bytes(vceqq_s8(a.high, b.high))};
}
[[gnu::always_inline]] inline bool any(Bytes bits) { return vmaxvq_u8(unsigned_bytes(vorrq_s8(bits.low, bits.high))) != 0; }

// Both factors fit into signed bytes, because unsigned codes are below 128.
[[gnu::always_inline]] inline Lanes products(Bytes a, Bytes b) {
  return {vdotq_s32(vdupq_n_s32(0), a.low, b.low), vdotq_s32(vdupq_n_s32(0), a.high, b.high)};
}
[[gnu::always_inline]] inline Lanes signed_products(Bytes a, Bytes b) { return products(a, b); }

// Every byte shifted right by n, of which `mask` keeps the bits that count.
[[gnu::always_inline]] inline Bytes bits_from(Bytes bytes, int n, int mask) {
  const int8x16_t shift = vdupq_n_s8(static_cast<int8_t>(-n)), kept = vdupq_n_s8(static_cast<int8_t>(mask));
  return {vandq_s8(signed_bytes(vshlq_u8(unsigned_bytes(bytes.low), shift)), kept),
          vandq_s8(signed_bytes(vshlq_u8(unsigned_bytes(bytes.high), shift)), kept)};
}

[[gnu::always_inline]] inline Bytes shifted_left(Bytes bytes, int n) {
  const int8x16_t shift = vdupq_n_s8(static_cast<int8_t>(n));
  return {vshlq_s8(bytes.low, shift), vshlq_s8(bytes.high, shift)};
}

// Sixteen bytes hold 32 codes: the low nibbles the first half, the high nibbles the second.
[[gnu::always_inline]] inline Bytes nibbles(const uint8_t* at) {
  const uint8x16_t both = vld1q_u8(at);
  return {signed_bytes(vandq_u8(both, vdupq_n_u8(15))), signed_bytes(vshrq_n_u8(both, 4))};
}

// The same where the nibbles of a byte are neighbours.
[[gnu::always_inline]] inline Bytes neighbouring_nibbles(const uint8_t* at) {
  const Bytes apart = nibbles(at);
  return {vzip1q_s8(apart.low, apart.high), vzip2q_s8(apart.low, apart.high)};
}

// Bit i of 32 becomes `value` in byte i.
[[gnu::always_inline]] inline Bytes spread_bits(const uint8_t* at, int value) {
  const uint8x16_t own = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
  const auto sixteen = [&](const uint8_t* two) {
    const uint8x16_t bits = vcombine_u8(vdup_n_u8(two[0]), vdup_n_u8(two[1]));
    return signed_bytes(vandq_u8(vtstq_u8(bits, own), vdupq_n_u8(static_cast<uint8_t>(value))));
  };
  return {sixteen(at), sixteen(at + 2)};
}

[[gnu::always_inline]] inline Bytes look_up(const int8_t* sixteen, Bytes codes) {
  const int8x16_t table = vld1q_s8(sixteen);
  return {vqtbl1q_s8(table, unsigned_bytes(codes.low)), vqtbl1q_s8(table, unsigned_bytes(codes.high))};
}

[[gnu::always_inline]] inline Floats operator+(Floats a, Floats b) {
  return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)};
}
[[gnu::always_inline]] inline Floats operator-(Floats a, Floats b) {
  return {vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)};
}
[[gnu::always_inline]] inline Floats operator*(Floats a, Floats b) {
  return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)};
}
[[gnu::always_inline]] inline Floats splat_halves(float low, float high) { return {vdupq_n_f32(low), vdupq_n_f32(high)}; }
[[gnu::always_inline]] inline Floats splat(float x) { return splat_halves(x, x); }
[[gnu::always_inline]] inline Floats load_floats(const float* at) { return {vld1q_f32(at), vld1q_f32(at + 4)}; }
[[gnu::always_inline]] inline void store_floats(float* at, Floats values) {
  vst1q_f32(at, values.low);
  vst1q_f32(at + 4, values.high);
}
[[gnu::always_inline]] inline Floats fma(Floats a, Floats b, Floats c) {
  return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
}
[[gnu::always_inline]] inline Floats to_floats(Lanes sums) { return {vcvtq_f32_s32(sums.low), vcvtq_f32_s32(sums.high)}; }

// 0 0 1 1 2 2 3 3, and the same of the upper four.
[[gnu::always_inline]] inline Floats doubled_low(Floats v) { return {vzip1q_f32(v.low, v.low), vzip2q_f32(v.low, v.low)}; }
[[gnu::always_inline]] inline Floats doubled_high(Floats v) { return {vzip1q_f32(v.high, v.high), vzip2q_f32(v.high, v.high)}; }

[[gnu::always_inline]] inline float sum_of(Floats values) { return vaddvq_f32(vaddq_f32(values.low, values.high)); }

// Eight int8, the first in the lowest byte.
[[gnu::always_inline]] inline Floats eight_integers(uint64_t bytes) {
  const int16x8_t words = vmovl_s8(vcreate_s8(bytes));
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(words))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(words)))};
}

[[gnu::always_inline]] inline Floats widen_eight(uint16x8_t halves) {
  const float16x8_t h = vreinterpretq_f16_u16(halves);
  return {vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)};
}

// The f16 numbers at one place of eight blocks. They are put together in ordinary registers: from lane to lane takes longer.
template <int bytes_of_block>
[[gnu::always_inline]] inline Floats halves_of_blocks(const uint8_t* at) {
  const auto four = [&](int first) {
    uint64_t together = 0;
    for (int i = 3; i >= 0; --i) {
      uint16_t v;
      std::memcpy(&v, at + (first + i) * bytes_of_block, sizeof v);
      together = together << 16 | v;
    }
    return vcvt_f32_f16(vreinterpret_f16_u64(vcreate_u64(together)));
  };
  return {four(0), four(4)};
}

[[gnu::always_inline]] inline Floats half_everywhere(const uint8_t* at) {
  uint16_t v;
  std::memcpy(&v, at, sizeof v);
  return widen_eight(vdupq_n_u16(v));
}

// Eight bytes at the top of words, moved to where f16 has its fields: too small by 256, and NaN is a number.
[[gnu::always_inline]] inline uint16x8_t e4m3_fields(int8x8_t bytes) {
  const int16x8_t words = vshlq_n_s16(vmovl_s8(bytes), 7);
  return vandq_u16(vreinterpretq_u16_s16(words), vdupq_n_u16(0xbf80));
}

[[gnu::always_inline]] inline Floats eight_e4m3(const uint8_t* at) {
  const uint16x8_t fields = e4m3_fields(vreinterpret_s8_u8(vld1_u8(at)));
  const uint16x8_t most = vdupq_n_u16(0x3f80), nan = vceqq_u16(vandq_u16(fields, most), most);
  return splat(256) * widen_eight(vorrq_u16(fields, vandq_u16(nan, vdupq_n_u16(0x7c00))));
}

struct SixteenFloats {
  Floats low, high;
};

[[gnu::always_inline]] inline SixteenFloats f16_values(const uint8_t* at) {
  return {widen_eight(vreinterpretq_u16_u8(vld1q_u8(at))), widen_eight(vreinterpretq_u16_u8(vld1q_u8(at + 16)))};
}
[[gnu::always_inline]] inline SixteenFloats e5m2_values(const uint8_t* at) {
  const uint8x16_t bytes = vld1q_u8(at);
  return {widen_eight(vshll_n_u8(vget_low_u8(bytes), 8)), widen_eight(vshll_high_n_u8(bytes, 8))};
}
[[gnu::always_inline]] inline SixteenFloats e4m3_values(const uint8_t* at) {
  const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(at));
  return {widen_eight(e4m3_fields(vget_low_s8(bytes))), widen_eight(e4m3_fields(vget_high_s8(bytes)))};
}

#include "backend/cpu/gemm/row_dots_formats.inc"  // which is written with these

// The formats that `--quant` writes have loops of their own, tuned on a Neoverse V1.

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

// The blocks from b on, one at a time.
float rest_q4_0(const StoredQ4* w, const DotRow& x, int64_t b, int64_t blocks) {
  float rest = 0, offsets = 0;
  for (; b < blocks; ++b) {
    const auto own = static_cast<float>(w[b].scale);
    rest += own * x.scales[b] * static_cast<float>(vaddvq_s32(dot_nibbles(w[b].q, x.values + kDotBlock * b)));
    offsets += own * x.sums[b];
  }
  return rest - 8.0f * offsets;
}

// The halves of a block; then the block four further on is loaded.
#define FLUX2_SPLIT(q, low, high, sum, offset)                          \
  "and v" #low ".16b, v" #q ".16b, v30.16b\n ushr v" #high ".16b, v" #q \
  ".16b, #4\n"                                                          \
  "ldur q" #q ", [%[w], #" #offset "]\n movi v" #sum ".2d, #0\n"

// Four blocks in a step: v8 … v11 with the activations in v0 … v7. Adding neighbours turns their four registers into one with a
// sum for each block, so that the conversion and the multiplication with the scales happen once. The scales are put together in
// ordinary registers: from lane to lane it took longer. Written by hand, because a compiler does not load in one step what the
// next one needs. The last step loads its own blocks again, so nothing behind the row is read. One core of Neoverse V1: 16.8 to
// 18 GB/s, left to the compiler 15.3 to 15.9; int8 reaches 24 and reading 25.
// clang-format off
float dot_q4_0(const void* weights, const DotRow& x, int64_t k) {
  const int64_t blocks = k / kDotBlock;
  float32x4_t found[2] = {};  // dots, and scales times the sums of the activations
  if (blocks >= 4) {
    const void* w = weights;
    const int8_t* values = x.values;
    const float *scales = x.scales, *offsets = x.sums;
    int64_t left = blocks / 4, step = 4 * sizeof(StoredQ4), x_step = 4 * kDotBlock;
    asm volatile(
        "movi v28.2d, #0\n movi v29.2d, #0\n movi v30.16b, #15\n"
        "ldp q0, q1, [%[x]]\n ldp q2, q3, [%[x], #32]\n ldp q4, q5, [%[x], #64]\n ldp q6, q7, [%[x], #96]\n"
        "ldur q8, [%[w], #2]\n ldur q9, [%[w], #20]\n ldur q10, [%[w], #38]\n ldur q11, [%[w], #56]\n"
        "1:\n"
        "subs %[left], %[left], #1\n csel %[step], %[step], xzr, ne\n csel %[x_step], %[x_step], xzr, ne\n"
        "ldrh w9, [%[w]]\n ldrh w10, [%[w], #18]\n ldrh w11, [%[w], #36]\n ldrh w12, [%[w], #54]\n"
        "add %[w], %[w], %[step]\n add %[x], %[x], %[x_step]\n"
        "prfm pldl1keep, [%[w], #1024]\n"
        "orr x9, x9, x10, lsl #16\n orr x11, x11, x12, lsl #16\n"
        FLUX2_SPLIT(8, 12, 16, 20, 2) FLUX2_SPLIT(9, 13, 17, 21, 20)
        FLUX2_SPLIT(10, 14, 18, 22, 38) FLUX2_SPLIT(11, 15, 19, 23, 56)
        "sdot v20.4s, v12.16b, v0.16b\n sdot v21.4s, v13.16b, v2.16b\n"
        "sdot v22.4s, v14.16b, v4.16b\n sdot v23.4s, v15.16b, v6.16b\n"
        "orr x9, x9, x11, lsl #32\n fmov d25, x9\n"
        "sdot v20.4s, v16.16b, v1.16b\n ldp q0, q1, [%[x]]\n"
        "sdot v21.4s, v17.16b, v3.16b\n ldp q2, q3, [%[x], #32]\n"
        "sdot v22.4s, v18.16b, v5.16b\n ldp q4, q5, [%[x], #64]\n"
        "sdot v23.4s, v19.16b, v7.16b\n ldp q6, q7, [%[x], #96]\n"
        "ldr q26, [%[scales]], #16\n ldr q27, [%[offsets]], #16\n fcvtl v25.4s, v25.4h\n"
        "addp v20.4s, v20.4s, v21.4s\n addp v22.4s, v22.4s, v23.4s\n"
        "fmul v26.4s, v26.4s, v25.4s\n fmla v29.4s, v27.4s, v25.4s\n"
        "addp v20.4s, v20.4s, v22.4s\n scvtf v20.4s, v20.4s\n fmla v28.4s, v20.4s, v26.4s\n"
        "b.ne 1b\n"
        "stp q28, q29, [%[found]]\n"
        : [w] "+r"(w), [x] "+r"(values), [scales] "+r"(scales), [offsets] "+r"(offsets), [left] "+r"(left), [step] "+r"(step),
          [x_step] "+r"(x_step)
        : [found] "r"(found)
        : "cc", "memory", "x9", "x10", "x11", "x12", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11",
          "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v25", "v26", "v27", "v28", "v29",
          "v30");
  }
  return vaddvq_f32(vfmsq_n_f32(found[0], found[1], 8)) +
         rest_q4_0(static_cast<const StoredQ4*>(weights), x, blocks / 4 * 4, blocks);
}
// clang-format on
#undef FLUX2_SPLIT

}  // namespace

constinit const RowDots kDots = [] {
  RowDots dots = row_dots();
  dots.int8 = dot_int8;
  dots.q8_0 = dot_q8_0;
  dots.q4_0 = dot_q4_0;
  return dots;
}();

}  // namespace flux2::gemm::neon_rows
