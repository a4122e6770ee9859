#pragma once

#include <memory>

#include "backend/cpu/gemm/driver.h"

namespace flux2::gemm {

// The rows of an activation matrix [M, K] as int8, each with a scale of its own: x ≈ scale · q, q rounded to nearest even
// and the largest of a row ±127. A row that holds a NaN or an infinity gets the scale NaN, and so has NaN results.
class QuantisedRows final : public RowSource<int8_t> {
 public:
  QuantisedRows(const Tensor& x, const Workers& workers);
  const float* scales() const { return scales_.get(); }  // [M]
  void rows(int64_t r, int count, int64_t k, int64_t n, const int8_t** out, int8_t* scratch) const override;

 private:
  MatrixRows<float> rows_;
  std::shared_ptr<float> scales_;
};

}  // namespace flux2::gemm
