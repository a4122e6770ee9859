#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace flux2 {

// How the elements of a tensor are stored. Block types keep several elements together with their scale;
// a row of a block-typed tensor is a whole number of blocks.
enum class DType : uint8_t {
  F32,
  F64,
  F16,
  BF16,
  I8,
  U8,
  I16,
  U16,
  I32,
  U32,
  I64,
  U64,
  Bool,
  F8_E4M3,
  F8_E5M2,
  F8_E8M0,
  Q8_0,  // 32 elements: f16 scale, 32 × i8
  Q4_0,  // 32 elements: f16 scale, 16 bytes; low nibbles are elements 0–15, high nibbles 16–31, value − 8
  Q4_1,
  Q5_0,
  Q5_1,
  IQ4_NL,  // 32 elements; tensor/blocks.h describes the layout
  Q2_K,
  Q3_K,
  Q4_K,
  Q5_K,
  Q6_K,
  IQ4_XS,  // 256 elements in groups with a scale each
  // Only in memory: weights whose files keep the scales apart (weights/quantised_values.h).
  F8_128,  // 128 elements: f32 scale, 128 × e4m3
  NVFP4,   // 128 elements: f32 factor, 8 × e4m3 scale of 16 elements, 64 bytes of e2m1; the even element is the low nibble
};

struct DTypeInfo {
  const char* name;    // the name in safetensors or GGUF files
  int block_elements;  // 1 for plain types
  int block_bytes;
};

const DTypeInfo& info(DType dtype);
inline const char* name_of(DType dtype) { return info(dtype).name; }
inline bool is_block_type(DType dtype) { return info(dtype).block_elements > 1; }
bool is_float(DType dtype);  // F32, F64, F16, BF16: what activations and gradients may be
std::optional<DType> dtype_named(std::string_view name);

// Bytes of n consecutive elements; n must be a whole number of blocks.
int64_t bytes_for(DType dtype, int64_t n);

// bf16 and f16 as bits. Conversions round to nearest, ties to even.
struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

inline float to_float(bf16 v) { return std::bit_cast<float>(static_cast<uint32_t>(v.bits) << 16); }
inline bf16 to_bf16(float v) {
  const uint32_t u = std::bit_cast<uint32_t>(v);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40)};  // NaN stays NaN
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}
float to_float(f16 v);
f16 to_f16(float v);
float e4m3_to_float(uint8_t v);
float e5m2_to_float(uint8_t v);

struct BlockQ8_0 {
  f16 scale;
  int8_t q[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

struct BlockQ4_0 {
  f16 scale;
  uint8_t q[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

}  // namespace flux2
