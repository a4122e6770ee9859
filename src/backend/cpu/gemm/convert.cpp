#include "backend/cpu/gemm/convert.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "backend/cpu/gemm/compiler.h"
#include "base/error.h"
#include "tensor/blocks.h"

namespace flux2::gemm {

namespace {

// Without branches on the value, so that loops over these become vector code.
bf16 round_bf16(float v) {
  const auto u = std::bit_cast<uint32_t>(v);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const uint32_t nan = (u >> 16) | 0x40u;
  return {static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded)};
}

float widen_f16(f16 v) {
  const uint32_t magnitude = static_cast<uint32_t>(v.bits & 0x7fffu) << 13;
  const uint32_t scaled = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  const uint32_t special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;  // infinity or NaN
  return std::bit_cast<float>(scaled | special | static_cast<uint32_t>(v.bits & 0x8000u) << 16);
}

template <class T>
T from_float(float v) {
  if constexpr (std::is_same_v<T, float>) return v;
  else return round_bf16(v);
}

// Eight bits moved to where the exponent and mantissa of f32 lie make a float that is too small by a power of two; the
// product with that power is exact, also for what was subnormal.
float widen_e4m3(uint8_t v) {
  const float magnitude = std::bit_cast<float>(static_cast<uint32_t>(v & 0x7fu) << 20) * 0x1p120f;
  const uint32_t nan = (v & 0x7fu) == 0x7fu ? 0x7fc00000u : 0u;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | nan | static_cast<uint32_t>(v & 0x80u) << 24);
}

float widen_e5m2(uint8_t v) { return widen_f16({static_cast<uint16_t>(v << 8)}); }

// For values bf16 holds exactly, as it does its own and every eight-bit one.
template <class T>
T from_short(float v) {
  if constexpr (std::is_same_v<T, float>) return v;
  else return {static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16)};
}

struct E4M3 {
  uint8_t bits;
};
struct E5M2 {
  uint8_t bits;
};

template <class T>
T value(float v) {
  return from_float<T>(v);
}
template <class T>
T value(f16 v) {
  return from_float<T>(widen_f16(v));
}
template <class T>
T value(bf16 v) {
  return from_short<T>(to_float(v));
}
template <class T>
T value(E4M3 v) {
  return from_short<T>(widen_e4m3(v.bits));
}
template <class T>
T value(E5M2 v) {
  return from_short<T>(widen_e5m2(v.bits));
}
template <class T>
T value(int8_t v) {
  return from_short<T>(v);
}

template <class T, class In>
FLUX2_CLONES void convert_values(const In* in, int64_t count, T* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = value<T>(in[i]);
}

template <class T>
void decode(const BlockQ8_0& block, T* out) {
  const float scale = widen_f16(block.scale);
  for (int i = 0; i < 32; ++i) out[i] = from_float<T>(scale * static_cast<float>(block.q[i]));
}

template <class T>
void decode(const BlockQ4_0& block, T* out) {
  const float scale = widen_f16(block.scale);
  for (int i = 0; i < 16; ++i) out[i] = from_float<T>(scale * static_cast<float>((block.q[i] & 15) - 8));
  for (int i = 0; i < 16; ++i) out[16 + i] = from_float<T>(scale * static_cast<float>((block.q[i] >> 4) - 8));
}

struct BlockF8_128 {
  float scale;
  uint8_t q[128];
};

struct BlockNvfp4 {
  float factor;
  uint8_t scales[8];
  uint8_t codes[64];
};

// These are inlined by force: a call would run code for the baseline instead of the level that was chosen.
template <class T>
[[gnu::always_inline]] inline void decode(const BlockF8_128& block, T* out) {
  const BlockF8_128 b = block;  // out might be where the bytes lie, as far as the compiler knows
  for (int i = 0; i < 128; ++i) out[i] = from_float<T>(widen_e4m3(b.q[i]) * b.scale);
}

// e2m1: 0, ½, 1, 1½, 2, 3, 4, 6 and a sign.
float widen_e2m1(uint8_t v) {
  const uint32_t magnitude = v & 7u;
  const uint32_t normal = (magnitude << 22) + (126u << 23), tiny = magnitude == 0 ? 0u : 0x3f000000u;
  return std::bit_cast<float>((magnitude < 2 ? tiny : normal) | static_cast<uint32_t>(v & 8u) << 28);
}

template <class T>
[[gnu::always_inline]] inline void decode(const BlockNvfp4& block, T* out) {
  const BlockNvfp4 b = block;
  uint8_t codes[128];
  float scales[128];
  for (int i = 0; i < 64; ++i) {
    codes[2 * i] = b.codes[i] & 15;
    codes[2 * i + 1] = b.codes[i] >> 4;
  }
  for (int group = 0; group < 8; ++group) std::fill_n(scales + 16 * group, 16, widen_e4m3(b.scales[group]) * b.factor);
  // One loop over everything: with a loop for each group the compiler unrolls and computes the values one by one.
  for (int i = 0; i < 128; ++i) out[i] = from_float<T>(widen_e2m1(codes[i]) * scales[i]);
}

template <class Block>
constexpr int64_t kElementsOf = 32;
template <>
constexpr int64_t kElementsOf<BlockF8_128> = 128;
template <>
constexpr int64_t kElementsOf<BlockNvfp4> = 128;

// Whole blocks go straight to their place; a block cut by either end goes through a copy.
template <class T, class Block>
FLUX2_CLONES void decode_blocks(const Block* blocks, int64_t start, int64_t count, T* out) {
  constexpr int64_t kElements = kElementsOf<Block>;
  for (int64_t i = start, end = start + count; i < end;) {
    const int64_t offset = i % kElements, n = std::min<int64_t>(kElements - offset, end - i);
    if (n == kElements) {
      decode(blocks[i / kElements], out);
    } else {
      T whole[kElements];
      decode(blocks[i / kElements], whole);
      std::copy_n(whole + offset, n, out);
    }
    i += n;
    out += n;
  }
}

// Types without their own loop are decoded to f32, one block (or the needed part of it) at a time.
template <class T>
void decode_any_blocks(DType dtype, const void* row, int64_t start, int64_t count, T* out) {
  const DTypeInfo& d = info(dtype);
  const auto* bytes = static_cast<const std::byte*>(row);
  for (int64_t i = start, end = start + count; i < end;) {
    const int64_t offset = i % d.block_elements, n = std::min<int64_t>(d.block_elements - offset, end - i);
    float whole[kMaxBlockElements];
    decode_blocks(dtype, bytes + i / d.block_elements * d.block_bytes, d.block_elements, whole);
    convert_values(whole + offset, n, out);
    i += n;
    out += n;
  }
}

}  // namespace

bool is_convertible(DType dtype) {
  switch (dtype) {
    case DType::F32:
    case DType::F16:
    case DType::BF16:
    case DType::F8_E4M3:
    case DType::F8_E5M2:
    case DType::I8: return true;
    default: return is_block_type(dtype);
  }
}

template <class T>
void convert(DType dtype, const void* row, int64_t start, int64_t count, T* out) {
  switch (dtype) {
    case DType::F32: return convert_values(static_cast<const float*>(row) + start, count, out);
    case DType::F16: return convert_values(static_cast<const f16*>(row) + start, count, out);
    case DType::BF16: return convert_values(static_cast<const bf16*>(row) + start, count, out);
    case DType::F8_E4M3: return convert_values(static_cast<const E4M3*>(row) + start, count, out);
    case DType::F8_E5M2: return convert_values(static_cast<const E5M2*>(row) + start, count, out);
    case DType::I8: return convert_values(static_cast<const int8_t*>(row) + start, count, out);
    case DType::Q8_0: return decode_blocks(static_cast<const BlockQ8_0*>(row), start, count, out);
    case DType::Q4_0: return decode_blocks(static_cast<const BlockQ4_0*>(row), start, count, out);
    case DType::F8_128: return decode_blocks(static_cast<const BlockF8_128*>(row), start, count, out);
    case DType::NVFP4: return decode_blocks(static_cast<const BlockNvfp4*>(row), start, count, out);
    default:
      if (is_block_type(dtype)) return decode_any_blocks(dtype, row, start, count, out);
      fail(ErrorCode::Internal, "no matrix product reads {}", name_of(dtype));
  }
}

template void convert(DType, const void*, int64_t, int64_t, float*);
template void convert(DType, const void*, int64_t, int64_t, bf16*);

template <class T>
const T* as_type(DType dtype, const void* row, int64_t start, int64_t count, T* scratch) {
  if (dtype == kDTypeOf<T>) return static_cast<const T*>(row) + start;
  convert(dtype, row, start, count, scratch);
  return scratch;
}

template const float* as_type(DType, const void*, int64_t, int64_t, float*);
template const bf16* as_type(DType, const void*, int64_t, int64_t, bf16*);

template <>
const int8_t* as_type(DType dtype, const void* row, int64_t start, int64_t, int8_t*) {
  if (dtype != DType::I8) fail(ErrorCode::Internal, "{} read as integers", name_of(dtype));
  return static_cast<const int8_t*>(row) + start;
}

void store(const float* values, int64_t count, DType dtype, void* out) {
  switch (dtype) {
    case DType::F32: std::copy_n(values, count, static_cast<float*>(out)); return;
    case DType::BF16: return convert_values(values, count, static_cast<bf16*>(out));
    case DType::F16:
      for (int64_t i = 0; i < count; ++i) static_cast<f16*>(out)[i] = to_f16(values[i]);
      return;
    default: fail(ErrorCode::Internal, "no matrix product writes {}", name_of(dtype));
  }
}

}  // namespace flux2::gemm
