#include "backend/cpu/gemm/block_panels.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/gemm/convert.h"

namespace flux2::gemm {

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

}  // namespace

bool has_blocks(DType dtype) { return dtype == DType::Q8_0 || dtype == DType::Q4_0; }

BlockPanels::BlockPanels(const Tensor& weight, const BlockKernel& kernel)
    : data_(weight.data<std::byte>()), dtype_(weight.dtype()),
      row_bytes_(weight.dim(0) > 1 ? bytes_for(weight.dtype(), weight.stride(0)) : 0), kernel_(kernel) {}

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
    else unpack_row<BlockQ4_0>(row, k / kScaleBlock, blocks, values, scales);
    value_rows[i] = values;
    scale_rows[i] = scales;
  }
  std::fill(value_rows + count, value_rows + kernel_.nr, value_rows[count - 1]);
  std::fill(scale_rows + count, scale_rows + kernel_.nr, scale_rows[count - 1]);
  kernel_.pack_b(n, value_rows, scale_rows, panel);
}

}  // namespace flux2::gemm
