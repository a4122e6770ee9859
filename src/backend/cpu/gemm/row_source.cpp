#include "backend/cpu/gemm/row_source.h"

#include <algorithm>

#include "backend/cpu/gemm/compiler.h"
#include "backend/cpu/gemm/convert.h"

namespace flux2::gemm {

template <class T>
MatrixRows<T>::MatrixRows(const Tensor& matrix, ConvertRow<T> convert)
    : MatrixRows(matrix.raw(), matrix.dtype(), matrix.dim(0) > 1 ? matrix.stride(0) : 0, convert) {}

template <class T>
MatrixRows<T>::MatrixRows(const void* data, DType dtype, int64_t row_stride, ConvertRow<T> convert)
    : data_(static_cast<const std::byte*>(data)), row_bytes_(bytes_for(dtype, row_stride)), dtype_(dtype), convert_(convert) {}

template <class T>
void MatrixRows<T>::rows(int64_t r, int count, int64_t k, int64_t n, const T** out, T* scratch) const {
  constexpr int kAhead = 2;  // rows lie far apart, so that converting each would begin with a wait for memory
  const DTypeInfo& d = info(dtype_);
  for (int i = 0; i < count; ++i) {
    const std::byte* row = data_ + (r + i) * row_bytes_;
    if (i + kAhead < count)
      prefetch(row + kAhead * row_bytes_ + k * d.block_bytes / d.block_elements, n * d.block_bytes / d.block_elements);
    T* converted = scratch + i * n;
    out[i] = convert_ && convert_(dtype_, row, k, n, converted) ? converted : as_type(dtype_, row, k, n, converted);
  }
}

template <class T>
void Transposed<T>::rows(int64_t r, int count, int64_t k, int64_t n, const T** out, T* scratch) const {
  constexpr int kGroup = 16;  // columns fetched at once, written as runs
  T held[kGroup * kMaxTileRows];
  const T* columns[kGroup];
  for (int64_t j = 0; j < n; j += kGroup) {
    const int group = static_cast<int>(std::min<int64_t>(kGroup, n - j));
    source_.rows(k + j, group, r, count, columns, held);
    for (int i = 0; i < count; ++i)
      for (int g = 0; g < group; ++g) scratch[i * n + j + g] = columns[g][i];
  }
  for (int i = 0; i < count; ++i) out[i] = scratch + i * n;
}

template class MatrixRows<float>;
template class MatrixRows<bf16>;
template class MatrixRows<int8_t>;
template class Transposed<float>;
template class Transposed<bf16>;

}  // namespace flux2::gemm
