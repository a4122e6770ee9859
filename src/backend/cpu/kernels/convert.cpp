#include "backend/cpu/kernels/convert.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/error.h"
#include "tensor/blocks.h"

namespace flux2::cpu {

namespace {

// One-byte floats as types of their own, so that overloads can tell them from integers.
struct E4M3 {
  uint8_t bits;
};
struct E5M2 {
  uint8_t bits;
};
struct E8M0 {
  uint8_t bits;
};
struct Truth {
  uint8_t value;
};

template <class S>
S decode(S v) {
  return v;
}
float decode(bf16 v) { return to_float(v); }
float decode(f16 v) { return to_float(v); }
float decode(E4M3 v) { return e4m3_to_float(v.bits); }
float decode(E5M2 v) { return e5m2_to_float(v.bits); }
float decode(E8M0 v) { return v.bits == 255 ? NAN : std::ldexp(1.0f, v.bits - 127); }
uint8_t decode(Truth v) { return v.value != 0; }

// Rounds to a format with `fraction` stored bits whose smallest normal is 2^lowest, largest finite value `limit`.
// Returns sign, exponent and fraction packed as IEEE formats do.
uint8_t encode_fp8(float v, int fraction, int lowest, float limit, uint8_t nan) {
  if (std::isnan(v)) return nan;
  const auto sign = static_cast<uint8_t>(std::signbit(v) ? 0x80 : 0);
  const float magnitude = std::min(std::fabs(v), limit);
  int exponent = magnitude > 0 ? std::ilogb(magnitude) : lowest;
  exponent = std::max(exponent, lowest);
  // In units of the last stored bit; carrying into the next exponent gives the right code by itself.
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, fraction - exponent)));
  const int code = ((exponent - lowest) << fraction) + units;
  return static_cast<uint8_t>(sign | code);
}

template <class D, class V>
D encode(V v) {
  if constexpr (std::is_same_v<D, bf16>) return to_bf16(static_cast<float>(v));
  else if constexpr (std::is_same_v<D, f16>) return to_f16(static_cast<float>(v));
  else if constexpr (std::is_same_v<D, E4M3>) return {encode_fp8(static_cast<float>(v), 3, -6, 448.0f, 0x7f)};
  else if constexpr (std::is_same_v<D, E5M2>) return {encode_fp8(static_cast<float>(v), 2, -14, 57344.0f, 0x7f)};
  else if constexpr (std::is_same_v<D, E8M0>) {
    const auto f = static_cast<float>(v);
    if (!(f > 0) || std::isinf(f)) return {static_cast<uint8_t>(f <= 0 ? 0 : 255)};
    return {static_cast<uint8_t>(std::clamp(static_cast<int>(std::nearbyint(std::log2(f))) + 127, 0, 254))};
  } else if constexpr (std::is_same_v<D, Truth>) return {static_cast<uint8_t>(v != V(0))};
  else if constexpr (std::is_integral_v<D> && std::is_floating_point_v<V>) {
    if (std::isnan(v)) return 0;
    if (v <= static_cast<V>(std::numeric_limits<D>::min())) return std::numeric_limits<D>::min();
    if (v >= static_cast<V>(std::numeric_limits<D>::max())) return std::numeric_limits<D>::max();
    return static_cast<D>(v);
  } else return static_cast<D>(v);
}

// Calls f with a value of the C++ type that stores a plain dtype.
template <class F>
void with_stored_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::F32: return f(float{});
    case DType::F64: return f(double{});
    case DType::F16: return f(f16{});
    case DType::BF16: return f(bf16{});
    case DType::I8: return f(int8_t{});
    case DType::U8: return f(uint8_t{});
    case DType::I16: return f(int16_t{});
    case DType::U16: return f(uint16_t{});
    case DType::I32: return f(int32_t{});
    case DType::U32: return f(uint32_t{});
    case DType::I64: return f(int64_t{});
    case DType::U64: return f(uint64_t{});
    case DType::Bool: return f(Truth{});
    case DType::F8_E4M3: return f(E4M3{});
    case DType::F8_E5M2: return f(E5M2{});
    case DType::F8_E8M0: return f(E8M0{});
    default: fail(ErrorCode::Internal, "{} is not an element type", name_of(dtype));
  }
}

template <class V>
void load_blocks(DType dtype, const void* x, int64_t n, V* values) {
  const DTypeInfo& d = info(dtype);
  const auto* block = static_cast<const std::byte*>(x);
  for (int64_t i = 0; i < n; i += d.block_elements, block += d.block_bytes) {
    float decoded[kMaxBlockElements];
    decode_blocks(dtype, block, d.block_elements, decoded);
    for (int j = 0; j < d.block_elements; ++j) values[i + j] = static_cast<V>(decoded[j]);
  }
}

}  // namespace

template <class V>
void load(DType dtype, const void* x, int64_t stride, int64_t n, V* values) {
  if (is_block_type(dtype)) return load_blocks(dtype, x, n, values);
  with_stored_type(dtype, [&]<class S>(S) {
    const S* from = static_cast<const S*>(x);
    if (stride == 1)
      for (int64_t i = 0; i < n; ++i) values[i] = static_cast<V>(decode(from[i]));
    else
      for (int64_t i = 0; i < n; ++i) values[i] = static_cast<V>(decode(from[i * stride]));
  });
}

template <class V>
void store(DType dtype, const V* values, void* y, int64_t stride, int64_t n) {
  with_stored_type(dtype, [&]<class D>(D) {
    D* to = static_cast<D*>(y);
    if (stride == 1)
      for (int64_t i = 0; i < n; ++i) to[i] = encode<D>(values[i]);
    else
      for (int64_t i = 0; i < n; ++i) to[i * stride] = encode<D>(values[i]);
  });
}

template void load(DType, const void*, int64_t, int64_t, float*);
template void load(DType, const void*, int64_t, int64_t, double*);
template void load(DType, const void*, int64_t, int64_t, int64_t*);
template void store(DType, const float*, void*, int64_t, int64_t);
template void store(DType, const double*, void*, int64_t, int64_t);
template void store(DType, const int64_t*, void*, int64_t, int64_t);

}  // namespace flux2::cpu
