#pragma once

#include "backend/cpu/gemm/panel_source.h"

namespace flux2::gemm {

// True for the dtypes BlockPanels reads: Q8_0, Q4_0.
bool has_blocks(DType dtype);

// A weight [N, K] stored in blocks of int8 or smaller integers with a scale each, packed for a BlockKernel.
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
