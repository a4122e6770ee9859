#include "weights/encode_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "tensor/blocks.h"
#include "weights/block_search.h"
#include "weights/row_encoders.h"

namespace flux2 {

namespace {

// Byte offsets are those of tensor/blocks.cpp.

void put_half(uint8_t* at, float v) {
  const f16 h = to_f16(v);
  std::memcpy(at, &h, sizeof h);
}

// Of numbers so small that they have no inverse all codes are as for zero.
float inverse_of(float d) {
  const float inverse = 1.0f / d;
  return std::isfinite(inverse) ? inverse : 0.0f;
}

// The first 32 codes' low nibbles: two halves share the bytes.
void put_nibbles(uint8_t* at, const uint8_t* codes) {
  for (int i = 0; i < 16; ++i) at[i] = static_cast<uint8_t>((codes[i] & 15) | (codes[16 + i] & 15) << 4);
}

void put_fifth_bits(uint8_t* at, const uint8_t* codes) {
  uint32_t bits = 0;
  for (int i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(codes[i] >> 4) << i;
  std::memcpy(at, &bits, sizeof bits);
}

// One of the extremes takes the lowest code: d = v / −centre, codes 0 … 2 · centre − 1.
float centred_codes(const float* x, float centre, uint8_t* codes) {
  float extreme = 0.0f;
  for (int i = 0; i < 32; ++i)
    if (std::abs(x[i]) > std::abs(extreme)) extreme = x[i];
  const float d = extreme / -centre, inverse = inverse_of(d);
  const int last = static_cast<int>(2 * centre) - 1;
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(std::min(last, static_cast<int>(x[i] * inverse + centre + 0.5f)));
  return d;
}

struct Range {
  float d, m;
};

Range shifted_codes(const float* x, int last, uint8_t* codes) {
  const auto [low, high] = std::minmax_element(x, x + 32);
  const float m = *low, d = (*high - m) / static_cast<float>(last), inverse = inverse_of(d);
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(std::min(last, static_cast<int>((x[i] - m) * inverse + 0.5f)));
  return {d, m};
}

void encode_q8_0(const float* x, uint8_t* b) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::abs(x[i]));
  const float d = largest / 127.0f, inverse = inverse_of(d);
  put_half(b, d);
  for (int i = 0; i < 32; ++i) {
    const float v = x[i] * inverse;
    b[2 + i] = static_cast<uint8_t>(static_cast<int32_t>(v + std::copysign(0.5f, v)));  // ties away from zero
  }
}

void encode_q4_0(const float* x, uint8_t* b) {
  uint8_t codes[32];
  put_half(b, centred_codes(x, 8, codes));
  put_nibbles(b + 2, codes);
}

void encode_q5_0(const float* x, uint8_t* b) {
  uint8_t codes[32];
  put_half(b, centred_codes(x, 16, codes));
  put_fifth_bits(b + 2, codes);
  put_nibbles(b + 6, codes);
}

void encode_q4_1(const float* x, uint8_t* b) {
  uint8_t codes[32];
  const Range range = shifted_codes(x, 15, codes);
  put_half(b, range.d);
  put_half(b + 2, range.m);
  put_nibbles(b + 4, codes);
}

void encode_q5_1(const float* x, uint8_t* b) {
  uint8_t codes[32];
  const Range range = shifted_codes(x, 31, codes);
  put_half(b, range.d);
  put_half(b + 2, range.m);
  put_fifth_bits(b + 4, codes);
  put_nibbles(b + 8, codes);
}

void encode_iq4_nl(const float* x, uint8_t* b) {
  const float d = search_nonlinear_scale(x);
  uint8_t codes[32];
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(nearest_nonlinear(d != 0 ? x[i] / d : 0.0f));
  put_half(b, d);
  put_nibbles(b + 2, codes);
}

// Four codes of two bits to a byte: a byte of one half of the block holds elements 32 apart.
void put_pairs_of_bits(uint8_t* at, const uint8_t* codes) {
  for (int i = 0; i < 64; ++i) {
    const uint8_t* c = codes + 128 * (i / 32) + i % 32;
    at[i] = static_cast<uint8_t>((c[0] & 3) | (c[32] & 3) << 2 | (c[64] & 3) << 4 | (c[96] & 3) << 6);
  }
}

void encode_q2_k(const float* x, uint8_t* b) {
  const AffineBlock s = search_affine(kQ2K, x);
  for (size_t g = 0; g < 16; ++g) b[g] = static_cast<uint8_t>(s.scale[g] | s.min[g] << 4);
  put_pairs_of_bits(b + 16, s.q.data());
  put_half(b + 80, s.d);
  put_half(b + 82, s.dmin);
}

void encode_q3_k(const float* x, uint8_t* b) {
  const SymmetricBlock s = search_symmetric(kQ3K, x);
  uint8_t codes[kBlock];
  for (size_t i = 0; i < kBlock; ++i) codes[i] = static_cast<uint8_t>(s.q[i] + 4);
  std::memset(b, 0, 32);
  for (int i = 0; i < kBlock; ++i) b[i % 32] = static_cast<uint8_t>(b[i % 32] | (codes[i] >> 2) << (i / 32));
  put_pairs_of_bits(b + 32, codes);
  pack_q3_scales(s.scale, b + 96);
  put_half(b + 108, s.d);
}

// What Q4_K and Q5_K begin with.
void put_scales(uint8_t* b, const AffineBlock& s) {
  put_half(b, s.d);
  put_half(b + 2, s.dmin);
  ScalesAndMins values;
  std::copy_n(s.scale.begin(), 8, values.scale);
  std::copy_n(s.min.begin(), 8, values.min);
  pack_scales(values, b + 4);
}

void put_nibbles_of_pairs(uint8_t* at, const uint8_t* codes) {
  for (int i = 0; i < 128; ++i) {
    const uint8_t* c = codes + 64 * (i / 32) + i % 32;
    at[i] = static_cast<uint8_t>((c[0] & 15) | (c[32] & 15) << 4);
  }
}

void encode_q4_k(const float* x, uint8_t* b) {
  const AffineBlock s = search_affine(kQ4K, x);
  put_scales(b, s);
  put_nibbles_of_pairs(b + 16, s.q.data());
}

void encode_q5_k(const float* x, uint8_t* b) {
  const AffineBlock s = search_affine(kQ5K, x);
  put_scales(b, s);
  std::memset(b + 16, 0, 32);
  for (int i = 0; i < kBlock; ++i)
    b[16 + i % 32] = static_cast<uint8_t>(b[16 + i % 32] | (s.q[static_cast<size_t>(i)] >> 4) << (i / 32));
  put_nibbles_of_pairs(b + 48, s.q.data());
}

void encode_q6_k(const float* x, uint8_t* b) {
  const SymmetricBlock s = search_symmetric(kQ6K, x);
  uint8_t codes[kBlock];
  for (size_t i = 0; i < kBlock; ++i) codes[i] = static_cast<uint8_t>(s.q[i] + 32);
  for (int i = 0; i < 128; ++i) {
    const uint8_t* c = codes + 128 * (i / 64) + i % 64;
    b[i] = static_cast<uint8_t>((c[0] & 15) | (c[64] & 15) << 4);
  }
  for (int i = 0; i < 64; ++i) {
    const uint8_t* c = codes + 128 * (i / 32) + i % 32;
    b[128 + i] = static_cast<uint8_t>((c[0] >> 4) | (c[32] >> 4) << 2 | (c[64] >> 4) << 4 | (c[96] >> 4) << 6);
  }
  std::memcpy(b + 192, s.scale.data(), 16);
  put_half(b + 208, s.d);
}

void encode_iq4_xs(const float* x, uint8_t* b) {
  const SymmetricBlock s = search_symmetric(kIQ4XS, x);
  put_half(b, s.d);
  std::memset(b + 2, 0, 6);
  for (int g = 0; g < 8; ++g) {
    const int scale = s.scale[static_cast<size_t>(g)] + 32;
    b[2 + g / 4] = static_cast<uint8_t>(b[2 + g / 4] | (scale >> 4) << 2 * (g % 4));
    b[4 + g / 2] = static_cast<uint8_t>(b[4 + g / 2] | (scale & 15) << 4 * (g % 2));
    uint8_t codes[32];
    std::copy_n(s.q.begin() + 32 * g, 32, codes);
    put_nibbles(b + 8 + 16 * g, codes);
  }
}

struct Encoder {
  void (*encode)(const float*, uint8_t*);
  int half;  // a half float that multiplies every element
};

Encoder encoder_of(DType dtype) {
  switch (dtype) {
    case DType::Q8_0: return {encode_q8_0, 0};
    case DType::Q4_0: return {encode_q4_0, 0};
    case DType::Q4_1: return {encode_q4_1, 0};
    case DType::Q5_0: return {encode_q5_0, 0};
    case DType::Q5_1: return {encode_q5_1, 0};
    case DType::IQ4_NL: return {encode_iq4_nl, 0};
    case DType::Q2_K: return {encode_q2_k, 80};
    case DType::Q3_K: return {encode_q3_k, 108};
    case DType::Q4_K: return {encode_q4_k, 0};
    case DType::Q5_K: return {encode_q5_k, 0};
    case DType::Q6_K: return {encode_q6_k, 208};
    case DType::IQ4_XS: return {encode_iq4_xs, 0};
    default: fail(ErrorCode::Internal, "{} has no blocks", name_of(dtype));
  }
}

bool all_finite(const float* x, int n) {
  float sum = 0;  // of zeros, unless something is not a number
  for (int i = 0; i < n; ++i) sum += x[i] - x[i];
  return sum == 0;
}

void encode_each(DType dtype, const float* x, int64_t count, void* out) {
  const Encoder encoder = encoder_of(dtype);
  const DTypeInfo& d = info(dtype);
  auto* b = static_cast<uint8_t*>(out);
  for (int64_t i = 0; i < count; i += d.block_elements, b += d.block_bytes) {
    if (all_finite(x + i, d.block_elements)) {
      encoder.encode(x + i, b);
      continue;
    }
    std::memset(b, 0, static_cast<size_t>(d.block_bytes));
    put_half(b + encoder.half, NAN);
  }
}

}  // namespace

void portable_q8_0(const float* x, int64_t count, void* out) { encode_each(DType::Q8_0, x, count, out); }
void portable_q4_0(const float* x, int64_t count, void* out) { encode_each(DType::Q4_0, x, count, out); }

void encode_blocks(DType dtype, const float* x, int64_t count, void* out) {
  switch (dtype) {
    case DType::Q8_0: return row_encoders().to_q8_0(x, count, out);
    case DType::Q4_0: return row_encoders().to_q4_0(x, count, out);
    default: return encode_each(dtype, x, count, out);
  }
}

}  // namespace flux2
