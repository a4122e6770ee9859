#include "tensor/blocks.h"

#include <bit>
#include <cstring>

#include "base/error.h"

namespace flux2 {

namespace {

// Layouts are given as byte offsets into b, one block. The inner loops have no branches, so that they become vector code.

float half(const uint8_t* at) {
  f16 v;
  std::memcpy(&v, at, sizeof v);
  return to_float(v);
}

uint32_t word(const uint8_t* at) {
  uint32_t v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

// Sixteen bytes hold 32 codes: the low nibbles the first half, the high nibbles the second.
void nibbles(const uint8_t* from, int32_t* codes) {
  for (int i = 0; i < 16; ++i) codes[i] = from[i] & 15;
  for (int i = 0; i < 16; ++i) codes[16 + i] = from[i] >> 4;
}

void add_fifth_bits(uint32_t bits, int32_t* codes) {
  for (int i = 0; i < 32; ++i) codes[i] |= static_cast<int32_t>((bits >> i) & 1u) << 4;
}

void centred(const int32_t* codes, float d, int32_t centre, float* out) {
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(codes[i] - centre);
}

void shifted(const int32_t* codes, float d, float m, float* out) {
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(codes[i]) + m;
}

void decode_q8_0(const uint8_t* b, float* out) {
  const float d = half(b);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(b[2 + i]));
}

void decode_q4_0(const uint8_t* b, float* out) {  // d @0, codes @2
  int32_t codes[32];
  nibbles(b + 2, codes);
  centred(codes, half(b), 8, out);
}

void decode_q4_1(const uint8_t* b, float* out) {  // d @0, m @2, codes @4
  int32_t codes[32];
  nibbles(b + 4, codes);
  shifted(codes, half(b), half(b + 2), out);
}

void decode_q5_0(const uint8_t* b, float* out) {  // d @0, fifth bits @2, codes @6
  int32_t codes[32];
  nibbles(b + 6, codes);
  add_fifth_bits(word(b + 2), codes);
  centred(codes, half(b), 16, out);
}

void decode_q5_1(const uint8_t* b, float* out) {  // d @0, m @2, fifth bits @4, codes @8
  int32_t codes[32];
  nibbles(b + 8, codes);
  add_fifth_bits(word(b + 4), codes);
  shifted(codes, half(b), half(b + 2), out);
}

void decode_nonlinear(const uint8_t* codes, float d, float* out) {
  for (int i = 0; i < 16; ++i) out[i] = d * static_cast<float>(kNonlinearCodes[codes[i] & 15]);
  for (int i = 0; i < 16; ++i) out[16 + i] = d * static_cast<float>(kNonlinearCodes[codes[i] >> 4]);
}

void decode_iq4_nl(const uint8_t* b, float* out) { decode_nonlinear(b + 2, half(b), out); }  // d @0, codes @2

// Sixteen groups of 16; a scale and a minimum of 4 bits each share a byte. Scales @0, codes @16, d @80, dmin @82.
void decode_q2_k(const uint8_t* b, float* out) {
  const float d = half(b + 80), dmin = half(b + 82);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(b[group] & 15), low = dmin * static_cast<float>(b[group] >> 4);
    const uint8_t* codes = b + 16 + 32 * (group / 8) + 16 * (group % 2);
    const int shift = 2 * (group % 8 / 2);
    for (int i = 0; i < 16; ++i) out[16 * group + i] = scale * static_cast<float>((codes[i] >> shift) & 3) - low;
  }
}

// Third bits @0, codes @32, scales @96, d @108.
void decode_q3_k(const uint8_t* b, float* out) {
  const float d = half(b + 108);
  const auto scales = unpack_q3_scales(b + 96);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(scales[static_cast<size_t>(group)]);
    const int within = 16 * (group % 2), shift = 2 * (group % 8 / 2), bit = group / 2;
    const uint8_t *codes = b + 32 + 32 * (group / 8) + within, *third = b + within;
    for (int i = 0; i < 16; ++i)
      out[16 * group + i] = scale * static_cast<float>(((codes[i] >> shift) & 3) + 4 * ((third[i] >> bit) & 1) - 4);
  }
}

// d @0, dmin @2, scales @4, codes @16.
void decode_q4_k(const uint8_t* b, float* out) {
  const float d = half(b), dmin = half(b + 2);
  const ScalesAndMins s = unpack_scales(b + 4);
  for (int group = 0; group < 8; ++group) {
    const float scale = d * static_cast<float>(s.scale[group]), low = dmin * static_cast<float>(s.min[group]);
    const uint8_t* codes = b + 16 + 32 * (group / 2);
    const int shift = 4 * (group % 2);
    for (int i = 0; i < 32; ++i) out[32 * group + i] = scale * static_cast<float>((codes[i] >> shift) & 15) - low;
  }
}

// d @0, dmin @2, scales @4, fifth bits @16, codes @48.
void decode_q5_k(const uint8_t* b, float* out) {
  const float d = half(b), dmin = half(b + 2);
  const ScalesAndMins s = unpack_scales(b + 4);
  for (int group = 0; group < 8; ++group) {
    const float scale = d * static_cast<float>(s.scale[group]), low = dmin * static_cast<float>(s.min[group]);
    const uint8_t *codes = b + 48 + 32 * (group / 2), *fifth = b + 16;
    const int shift = 4 * (group % 2);
    for (int i = 0; i < 32; ++i)
      out[32 * group + i] = scale * static_cast<float>(((codes[i] >> shift) & 15) + 16 * ((fifth[i] >> group) & 1)) - low;
  }
}

// Low nibbles @0, upper two bits @128, scales @192, d @208.
void decode_q6_k(const uint8_t* b, float* out) {
  const float d = half(b + 208);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(static_cast<int8_t>(b[192 + group]));
    const int part = group / 8, place = group % 8;  // eight groups to each half of the block
    const uint8_t *low = b + 64 * part + 16 * (place % 4), *high = b + 128 + 32 * part + 16 * (place % 2);
    const int low_shift = 4 * (place / 4), high_shift = 2 * (place / 2);
    for (int i = 0; i < 16; ++i)
      out[16 * group + i] = scale * static_cast<float>((((low[i] >> low_shift) & 15) | ((high[i] >> high_shift) & 3) << 4) - 32);
  }
}

// d @0, upper two bits of the scales @2, their low nibbles @4, codes @8.
void decode_iq4_xs(const uint8_t* b, float* out) {
  const float d = half(b);
  const int high = b[2] | b[3] << 8;
  for (int group = 0; group < 8; ++group) {
    const int scale = ((b[4 + group / 2] >> 4 * (group % 2)) & 15) | ((high >> 2 * group) & 3) << 4;
    decode_nonlinear(b + 8 + 16 * group, d * static_cast<float>(scale - 32), out + 32 * group);
  }
}

// e4m3 without a branch, so that loops over it become vector code. Equal to e4m3_to_float.
float e4m3_value(uint8_t v) {
  const uint32_t magnitude = v & 0x7fu;
  const auto tiny = static_cast<float>(magnitude) * 0x1p-9f;
  const float normal = std::bit_cast<float>(magnitude == 0x7fu ? 0x7fc00000u : (magnitude << 20) + (120u << 23));
  const float value = magnitude < 8 ? tiny : normal;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | static_cast<uint32_t>(v & 0x80u) << 24);
}

// e2m1: 0, ½, 1, 1½, 2, 3, 4, 6 and a sign.
float e2m1_value(int code) {
  const auto magnitude = static_cast<uint32_t>(code & 7);
  const float tiny = static_cast<float>(magnitude) * 0.5f;
  const float value = magnitude < 2 ? tiny : std::bit_cast<float>((magnitude << 22) + (126u << 23));
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | static_cast<uint32_t>(code & 8) << 28);
}

float float_at(const uint8_t* b) {
  float v;
  std::memcpy(&v, b, sizeof v);
  return v;
}

// Scale @0, values @4.
void decode_f8_128(const uint8_t* b, float* out) {
  const float scale = float_at(b);
  for (int i = 0; i < 128; ++i) out[i] = e4m3_value(b[4 + i]) * scale;
}

// Factor @0, scales @4, codes @12.
void decode_nvfp4(const uint8_t* b, float* out) {
  const float factor = float_at(b);
  for (int group = 0; group < 8; ++group) {
    const float scale = e4m3_value(b[4 + group]) * factor;
    const uint8_t* codes = b + 12 + 8 * group;
    for (int i = 0; i < 8; ++i) {
      out[16 * group + 2 * i] = e2m1_value(codes[i] & 15) * scale;
      out[16 * group + 2 * i + 1] = e2m1_value(codes[i] >> 4) * scale;
    }
  }
}

using Decode = void (*)(const uint8_t*, float*);

Decode decoder_of(DType dtype) {
  switch (dtype) {
    case DType::Q8_0: return decode_q8_0;
    case DType::Q4_0: return decode_q4_0;
    case DType::Q4_1: return decode_q4_1;
    case DType::Q5_0: return decode_q5_0;
    case DType::Q5_1: return decode_q5_1;
    case DType::IQ4_NL: return decode_iq4_nl;
    case DType::Q2_K: return decode_q2_k;
    case DType::Q3_K: return decode_q3_k;
    case DType::Q4_K: return decode_q4_k;
    case DType::Q5_K: return decode_q5_k;
    case DType::Q6_K: return decode_q6_k;
    case DType::IQ4_XS: return decode_iq4_xs;
    case DType::F8_128: return decode_f8_128;
    case DType::NVFP4: return decode_nvfp4;
    default: fail(ErrorCode::Internal, "{} has no blocks", name_of(dtype));
  }
}

}  // namespace

void decode_blocks(DType dtype, const void* blocks, int64_t count, float* out) {
  const DTypeInfo& d = info(dtype);
  const Decode decode = decoder_of(dtype);
  const auto* b = static_cast<const uint8_t*>(blocks);
  for (int64_t i = 0; i < count; i += d.block_elements, b += d.block_bytes) decode(b, out + i);
}

ScalesAndMins unpack_scales(const uint8_t packed[12]) {
  ScalesAndMins values;
  for (int i = 0; i < 4; ++i) {
    values.scale[i] = packed[i] & 63;
    values.min[i] = packed[4 + i] & 63;
    values.scale[4 + i] = static_cast<uint8_t>((packed[8 + i] & 15) | (packed[i] >> 6) << 4);
    values.min[4 + i] = static_cast<uint8_t>((packed[8 + i] >> 4) | (packed[4 + i] >> 6) << 4);
  }
  return values;
}

void pack_scales(const ScalesAndMins& values, uint8_t packed[12]) {
  for (int i = 0; i < 4; ++i) {
    packed[i] = static_cast<uint8_t>(values.scale[i] | (values.scale[4 + i] >> 4) << 6);
    packed[4 + i] = static_cast<uint8_t>(values.min[i] | (values.min[4 + i] >> 4) << 6);
    packed[8 + i] = static_cast<uint8_t>((values.scale[4 + i] & 15) | (values.min[4 + i] & 15) << 4);
  }
}

std::array<int8_t, 16> unpack_q3_scales(const uint8_t packed[12]) {
  std::array<int8_t, 16> scales;
  for (size_t i = 0; i < 16; ++i) {
    const int low = (packed[i % 8] >> 4 * (i / 8)) & 15, high = (packed[8 + i % 4] >> 2 * (i / 4)) & 3;
    scales[i] = static_cast<int8_t>((low | high << 4) - 32);
  }
  return scales;
}

void pack_q3_scales(const std::array<int8_t, 16>& scales, uint8_t packed[12]) {
  std::memset(packed, 0, 12);
  for (size_t i = 0; i < 16; ++i) {
    const int value = scales[i] + 32;
    packed[i % 8] = static_cast<uint8_t>(packed[i % 8] | (value & 15) << 4 * (i / 8));
    packed[8 + i % 4] = static_cast<uint8_t>(packed[8 + i % 4] | (value >> 4) << 2 * (i / 4));
  }
}

}  // namespace flux2
