#include "weights/read_values.h"

#include <array>
#include <cstring>

#include "base/error.h"
#include "tensor/blocks.h"
#include "weights/row_encoders.h"

namespace flux2 {

namespace {

// Elements through a small aligned copy, so that the loop that widens them becomes vector code.
template <class T, class Widen>
void widen_all(const void* data, int64_t count, float* out, const Widen& widen) {
  constexpr int64_t kPiece = 256;
  const auto* bytes = static_cast<const std::byte*>(data);
  for (int64_t i = 0; i < count; i += kPiece) {
    T piece[kPiece];
    const int64_t n = std::min(kPiece, count - i);
    std::memcpy(piece, bytes + i * static_cast<int64_t>(sizeof(T)), static_cast<size_t>(n) * sizeof(T));
    for (int64_t j = 0; j < n; ++j) out[i + j] = widen(piece[j]);
  }
}

std::array<float, 256> table_of(float (*value)(uint8_t)) {
  std::array<float, 256> table;
  for (size_t i = 0; i < table.size(); ++i) table[i] = value(static_cast<uint8_t>(i));
  return table;
}

}  // namespace

bool is_readable(DType dtype) {
  return is_float(dtype) || is_block_type(dtype) || dtype == DType::F8_E4M3 || dtype == DType::F8_E5M2 || dtype == DType::I8;
}

void read_values(DType dtype, const void* data, int64_t count, float* out) {
  static const auto e4m3 = table_of(e4m3_to_float), e5m2 = table_of(e5m2_to_float);
  switch (dtype) {
    case DType::F32: std::memcpy(out, data, static_cast<size_t>(count) * sizeof(float)); return;
    case DType::F64: return widen_all<double>(data, count, out, [](double v) { return static_cast<float>(v); });
    case DType::F16: return widen_all<f16>(data, count, out, [](f16 v) { return to_float(v); });
    case DType::BF16: return row_encoders().widen_bf16(data, count, out);
    case DType::I8: return widen_all<int8_t>(data, count, out, [](int8_t v) { return static_cast<float>(v); });
    case DType::F8_E4M3: return widen_all<uint8_t>(data, count, out, [](uint8_t v) { return e4m3[v]; });
    case DType::F8_E5M2: return widen_all<uint8_t>(data, count, out, [](uint8_t v) { return e5m2[v]; });
    default:
      if (is_block_type(dtype)) return decode_blocks(dtype, data, count, out);
      fail(ErrorCode::Incompatible, "{} values cannot be read as weights", name_of(dtype));
  }
}

}  // namespace flux2
