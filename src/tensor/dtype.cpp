#include "tensor/dtype.h"

#include <array>
#include <cmath>

#include "base/error.h"

namespace flux2 {

namespace {

constexpr std::array<DTypeInfo, 30> kInfo = {{
    {"F32", 1, 4},      {"F64", 1, 8},      {"F16", 1, 2},      {"BF16", 1, 2},       {"I8", 1, 1},         {"U8", 1, 1},
    {"I16", 1, 2},      {"U16", 1, 2},      {"I32", 1, 4},      {"U32", 1, 4},        {"I64", 1, 8},        {"U64", 1, 8},
    {"BOOL", 1, 1},     {"F8_E4M3", 1, 1},  {"F8_E5M2", 1, 1},  {"F8_E8M0", 1, 1},    {"Q8_0", 32, 34},     {"Q4_0", 32, 18},
    {"Q4_1", 32, 20},   {"Q5_0", 32, 22},   {"Q5_1", 32, 24},   {"IQ4_NL", 32, 18},   {"Q2_K", 256, 84},    {"Q3_K", 256, 110},
    {"Q4_K", 256, 144}, {"Q5_K", 256, 176}, {"Q6_K", 256, 210}, {"IQ4_XS", 256, 136}, {"F8_128", 128, 132}, {"NVFP4", 128, 76},
}};

}  // namespace

const DTypeInfo& info(DType dtype) { return kInfo[static_cast<size_t>(dtype)]; }

bool is_float(DType dtype) { return dtype == DType::F32 || dtype == DType::F64 || dtype == DType::F16 || dtype == DType::BF16; }

std::optional<DType> dtype_named(std::string_view name) {
  for (size_t i = 0; i < kInfo.size(); ++i)
    if (name == kInfo[i].name) return static_cast<DType>(i);
  return std::nullopt;
}

int64_t bytes_for(DType dtype, int64_t n) {
  const auto& d = info(dtype);
  require(n % d.block_elements == 0, "{} elements are not a whole number of {} blocks of {}", n, d.name, d.block_elements);
  return n / d.block_elements * d.block_bytes;
}

float to_float(f16 v) {
  const uint32_t sign = static_cast<uint32_t>(v.bits & 0x8000u) << 16;
  const uint32_t exponent = (v.bits >> 10) & 31u, fraction = v.bits & 1023u;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent == 0) {  // zero or subnormal: fraction · 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

f16 to_f16(float v) {
  const uint32_t u = std::bit_cast<uint32_t>(v);
  const auto sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
  const uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};  // rounds to infinity
  if (magnitude < 0x38800000u) {                                                 // subnormal: let float addition do the rounding
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u))};
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return {static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

float e4m3_to_float(uint8_t v) {
  const int exponent = (v >> 3) & 15, fraction = v & 7;
  float magnitude;
  if (exponent == 15 && fraction == 7) magnitude = NAN;
  else if (exponent == 0) magnitude = std::ldexp(static_cast<float>(fraction), -9);
  else magnitude = std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  return (v & 0x80) ? -magnitude : magnitude;
}

float e5m2_to_float(uint8_t v) { return to_float(f16{static_cast<uint16_t>(v << 8)}); }

}  // namespace flux2
