#pragma once

#include "backend/cpu/gemm/panel_source.h"

namespace flux2::gemm {

// A weight [N, K] stored in blocks, packed for a BlockKernel. The integers of Q8_0 and Q4_0 are taken as they are; other
// types have minima, code tables or smaller groups, and are rounded to int8 with a scale for each 32 elements. That step
// is a quarter of Q6_K's own and less of the coarser ones', so what it adds is lost beside what they have lost.
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
