#include "backend/cpu/gemm/panels.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/gemm/compiler.h"
#include "backend/cpu/gemm/convert.h"

namespace flux2::gemm {

template <class T>
void RowPanels<T>::pack(int64_t r, int count, int64_t k, int64_t n, void* scratch, void* panel) const {
  const T* rows[kMaxTileRows];
  rows_.rows(r, count, k, n, rows, static_cast<T*>(scratch));
  std::fill(rows + count, rows + width_, rows[count - 1]);
  pack_(n, rows, panel);
}

template class RowPanels<float>;
template class RowPanels<bf16>;
template class RowPanels<int8_t>;

namespace {

void unpack(const BlockQ8_0& block, int8_t* out) { std::memcpy(out, block.q, sizeof block.q); }

// The nibbles are copied first: out might be where they lie, as far as the compiler knows.
void unpack(const BlockQ4_0& block, int8_t* out) {
  uint8_t q[16];
  std::memcpy(q, block.q, sizeof q);
  for (int i = 0; i < 16; ++i) out[i] = static_cast<int8_t>((q[i] & 15) - 8);
  for (int i = 0; i < 16; ++i) out[16 + i] = static_cast<int8_t>((q[i] >> 4) - 8);
}

template <class Block>
void unpack_row(const std::byte* row, int64_t first, int64_t count, int8_t* values, float* scales) {
  constexpr int64_t kPiece = 32;
  const auto* blocks = reinterpret_cast<const Block*>(row) + first;
  for (int64_t i = 0; i < count; i += kPiece) {
    f16 halves[kPiece];
    const int64_t n = std::min(kPiece, count - i);
    for (int64_t j = 0; j < n; ++j) {
      unpack(blocks[i + j], values + (i + j) * kScaleBlock);
      halves[j] = blocks[i + j].scale;
    }
    convert(DType::F16, halves, 0, n, scales + i);
  }
}

// Elements that are not finite leave the scale NaN, so that they show.
FLUX2_CLONES float round_block(const float* x, int8_t* out) {
  float largest = 0, not_finite = 0;
  for (int i = 0; i < kScaleBlock; ++i) {
    largest = std::max(largest, std::abs(x[i]));
    not_finite += x[i] - x[i];
  }
  if (std::isnan(not_finite)) {
    std::fill_n(out, kScaleBlock, int8_t{0});
    return NAN;
  }
  const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
  for (int i = 0; i < kScaleBlock; ++i) {
    const float v = x[i] * inverse;
    out[i] = static_cast<int8_t>(v + std::copysign(0.5f, v));
  }
  return largest / 127.0f;
}

void round_row(DType dtype, const std::byte* row, int64_t k, int64_t n, int8_t* values, float* scales) {
  constexpr int64_t kPiece = 256;
  for (int64_t i = 0; i < n; i += kPiece) {
    float decoded[kPiece];
    const int64_t count = std::min(kPiece, n - i);
    convert(dtype, row, k + i, count, decoded);
    for (int64_t j = 0; j < count; j += kScaleBlock) scales[(i + j) / kScaleBlock] = round_block(decoded + j, values + i + j);
  }
}

}  // namespace

BlockPanels::BlockPanels(const Tensor& weight, const BlockKernel& kernel)
    : data_(weight.data<std::byte>()),
      dtype_(weight.dtype()),
      row_bytes_(weight.dim(0) > 1 ? bytes_for(weight.dtype(), weight.stride(0)) : 0),
      kernel_(kernel) {}

int64_t BlockPanels::scratch_bytes(int64_t n) const {
  return kernel_.nr * (n + n / kScaleBlock * static_cast<int64_t>(sizeof(float)));
}

// Blocks of K begin at whole blocks of the weight, and a row is a whole number of them.
void BlockPanels::pack(int64_t r, int count, int64_t k, int64_t n, void* scratch, void* panel) const {
  const int64_t blocks = n / kScaleBlock;
  auto* scales = static_cast<float*>(scratch);
  auto* values = reinterpret_cast<int8_t*>(scales + kernel_.nr * blocks);
  const int8_t* value_rows[kMaxTileRows];
  const float* scale_rows[kMaxTileRows];
  for (int i = 0; i < count; ++i, values += n, scales += blocks) {
    const std::byte* row = data_ + (r + i) * row_bytes_;
    if (dtype_ == DType::Q8_0) unpack_row<BlockQ8_0>(row, k / kScaleBlock, blocks, values, scales);
    else if (dtype_ == DType::Q4_0) unpack_row<BlockQ4_0>(row, k / kScaleBlock, blocks, values, scales);
    else round_row(dtype_, row, k, n, values, scales);
    value_rows[i] = values;
    scale_rows[i] = scales;
  }
  std::fill(value_rows + count, value_rows + kernel_.nr, value_rows[count - 1]);
  std::fill(scale_rows + count, scale_rows + kernel_.nr, scale_rows[count - 1]);
  kernel_.pack_b(n, value_rows, scale_rows, panel);
}

}  // namespace flux2::gemm
