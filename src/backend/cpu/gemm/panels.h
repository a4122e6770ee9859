#pragma once

#include "backend/cpu/gemm/micro_kernel.h"
#include "backend/cpu/gemm/row_source.h"

namespace flux2::gemm {

// One operand of a product, packed: the driver asks for the panel of a few rows over a range of k. Rows of a panel past the end
// of the operand may contain anything; their results are not used.
class PanelSource {
 public:
  virtual ~PanelSource() = default;

  // What pack() works in for n elements of each row.
  virtual int64_t scratch_bytes(int64_t n) const = 0;
  // Packs elements [k, k + n) of rows [r, r + count), 0 < count ≤ the width of a panel.
  virtual void pack(int64_t r, int count, int64_t k, int64_t n, void* scratch, void* panel) const = 0;
};

// What a source of rows gives, interleaved by a micro-kernel's function for panels of `width` rows.
template <class T>
class RowPanels final : public PanelSource {
 public:
  RowPanels(const RowSource<T>& rows, PackRows<T> interleave, int width) : rows_(rows), pack_(interleave), width_(width) {}
  int64_t scratch_bytes(int64_t n) const override { return width_ * n * static_cast<int64_t>(sizeof(T)); }
  void pack(int64_t r, int count, int64_t k, int64_t n, void* scratch, void* panel) const override;

 private:
  const RowSource<T>& rows_;
  PackRows<T> pack_;
  int width_;
};

// A weight [N, K] stored in blocks, packed for a BlockKernel. The integers of Q8_0 and Q4_0 are taken as they are; other types
// have minima, code tables or smaller groups, and are rounded to int8 with a scale for each 32 elements. This rounding step is a
// quarter of Q6_K's own step, and less compared with the coarser types, so the additional error is negligible.
class BlockPanels final : public PanelSource {
 public:
  BlockPanels(const Tensor& weight, const BlockKernel& kernel);
  int64_t scratch_bytes(int64_t n) const override;
  void pack(int64_t r, int count, int64_t k, int64_t n, void* scratch, void* panel) const override;

 private:
  const std::byte* data_;
  DType dtype_;
  int64_t row_bytes_;
  const BlockKernel& kernel_;
};

}  // namespace flux2::gemm
