#include "backend/cpu/gemm/output.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "backend/cpu/gemm/compiler.h"
#include "backend/cpu/gemm/convert.h"
#include "backend/cpu/gemm/micro_kernel.h"

namespace flux2::gemm {

namespace {

using Piece = std::array<float, kMaxTileRows>;

constexpr Piece kZeros = {};
constexpr Piece kOnes = [] {
  Piece ones;
  ones.fill(1.0f);
  return ones;
}();

// Count is an integral_constant for whole pieces, which makes straight vector code of the loop.
template <class Count>
void finish(Count count, const float* sums, float factor, const float* scales, const float* bias, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = sums[i] * factor * scales[i] + bias[i];
}

template <int64_t n>
using Constant = std::integral_constant<int64_t, n>;

FLUX2_CLONES void finish_piece(int64_t count, const float* sums, float factor, const float* scales, const float* bias,
                               float* out) {
  switch (count) {
    case 12: return finish(Constant<12>(), sums, factor, scales, bias, out);
    case 16: return finish(Constant<16>(), sums, factor, scales, bias, out);
    case 32: return finish(Constant<32>(), sums, factor, scales, bias, out);
    default: return finish(count, sums, factor, scales, bias, out);
  }
}

}  // namespace

int64_t Output::offset(int64_t row) const {
  return line > 0 ? row / line * line_stride + row % line * row_stride : row * row_stride;
}

void Output::store(Pieces sums, int64_t row, int64_t c, int64_t columns) const {
  const int64_t width = info(dtype).block_bytes, start = offset(row) + c;
  auto* out = static_cast<std::byte*>(data) + start * width;
  const float factor = row_scales ? row_scales[row] : 1.0f;
  for (int64_t i = 0; i < columns; i += sums.length, sums.first += sums.apart, out += sums.length * width) {
    const int64_t count = std::min(sums.length, columns - i);
    const float* scales = column_scales ? column_scales + c + i : kOnes.data();
    const float* terms = bias ? bias + c + i : kZeros.data();
    Piece held, more;
    const bool direct = dtype == DType::F32 && residual != data;  // a residual that lies here is read before it is replaced
    float* values = direct ? reinterpret_cast<float*>(out) : held.data();
    const float* added = residual ? as_type(dtype, residual, start + i, count, more.data()) : nullptr;
    finish_piece(count, sums.first, factor, scales, terms, values);
    for (int64_t j = 0; added && j < count; ++j) values[j] += added[j];
    if (dtype != DType::F32) gemm::store(values, count, dtype, out);
    else if (!direct) std::copy_n(values, count, reinterpret_cast<float*>(out));
  }
}

}  // namespace flux2::gemm
