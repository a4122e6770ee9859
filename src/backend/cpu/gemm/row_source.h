#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/gemm/micro_kernel.h"
#include "tensor/tensor.h"

namespace flux2::gemm {

// One operand of a product as rows along the summed axis. The driver asks for a few rows over a range of k at a time; the source
// decides where they come from (stored weights, patches of an image, the columns of a matrix).
template <class T>
class RowSource {
 public:
  virtual ~RowSource() = default;

  // Sets out[i] to elements [k, k + n) of row r + i, for i < count: memory of the source itself or scratch, which
  // holds count · n elements.
  virtual void rows(int64_t r, int count, int64_t k, int64_t n, const T** out, T* scratch) const = 0;
};

// The rows of a matrix [R, K] of any convertible dtype, its rows apart by their stride.
template <class T>
class MatrixRows final : public RowSource<T> {
 public:
  explicit MatrixRows(const Tensor& matrix, ConvertRow<T> convert = nullptr);
  // The stride in elements.
  MatrixRows(const void* data, DType dtype, int64_t row_stride, ConvertRow<T> convert = nullptr);
  void rows(int64_t r, int count, int64_t k, int64_t n, const T** out, T* scratch) const override;

 private:
  const std::byte* data_;
  int64_t row_bytes_;
  DType dtype_;
  ConvertRow<T> convert_;
};

// The transpose of another source: row r here is element r of each row there.
template <class T>
class Transposed final : public RowSource<T> {
 public:
  explicit Transposed(const RowSource<T>& source) : source_(source) {}
  void rows(int64_t r, int count, int64_t k, int64_t n, const T** out, T* scratch) const override;

 private:
  const RowSource<T>& source_;
};

}  // namespace flux2::gemm
