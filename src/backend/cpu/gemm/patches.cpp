#include "backend/cpu/gemm/patches.h"

#include <algorithm>

#include "backend/cpu/gemm/convert.h"
#include "backend/cpu/gemm/micro_kernel.h"

namespace flux2::gemm {

TapGrid TapGrid::of_input(const Tensor& w, const Tensor& y, const ConvShape& conv) {
  return {y.dim(1), y.dim(2), w.dim(2), conv.stride, conv.pad_top, conv.pad_left, 1, 1};
}

TapGrid TapGrid::of_gradient(const Tensor& w, const Tensor& dx, const ConvShape& conv) {
  return {dx.dim(1), dx.dim(2), w.dim(2), 1, -conv.pad_top, -conv.pad_left, -1, conv.stride};
}

template <class T>
Patches<T>::Patches(const Tensor& image, const TapGrid& grid)
    : data_(image.data<std::byte>()),
      dtype_(image.dtype()),
      height_(image.dim(1)),
      width_(image.dim(2)),
      channels_(image.dim(3)),
      element_bytes_(info(image.dtype()).block_bytes),
      grid_(grid) {}

template <class T>
const std::byte* Patches<T>::pixel(int64_t batch, int64_t i, int64_t j, int64_t tap) const {
  const int64_t u = tap / grid_.kernel_columns, v = tap % grid_.kernel_columns;
  int64_t y = i * grid_.step - grid_.top + u * grid_.direction;
  int64_t x = j * grid_.step - grid_.left + v * grid_.direction;
  if (grid_.divide > 1) {
    if (y % grid_.divide != 0 || x % grid_.divide != 0) return nullptr;
    y /= grid_.divide;
    x /= grid_.divide;
  }
  if (y < 0 || y >= height_ || x < 0 || x >= width_) return nullptr;
  return data_ + ((batch * height_ + y) * width_ + x) * channels_ * element_bytes_;
}

template <class T>
const T* Patches<T>::row(int64_t r, int64_t k, int64_t n, T* scratch) const {
  const int64_t j = r % grid_.columns, i = r / grid_.columns % grid_.rows, batch = r / grid_.columns / grid_.rows;
  for (int64_t done = 0; done < n;) {
    const int64_t c = (k + done) % channels_, length = std::min(channels_ - c, n - done);
    const std::byte* source = pixel(batch, i, j, (k + done) / channels_);
    if (!source) std::fill_n(scratch + done, length, T{});
    else if (length == n) return as_type(dtype_, source, c, n, scratch);
    else convert(dtype_, source, c, length, scratch + done);
    done += length;
  }
  return scratch;
}

template <class T>
void Patches<T>::rows(int64_t r, int count, int64_t k, int64_t n, const T** out, T* scratch) const {
  for (int i = 0; i < count; ++i) out[i] = row(r + i, k, n, scratch + i * n);
}

template <class T>
WeightColumns<T>::WeightColumns(const Tensor& w)
    : by_output_(w.reshaped({w.dim(0), w.numel() / std::max<int64_t>(1, w.dim(0))})), outputs_(w.dim(0)), channels_(w.dim(3)) {}

template <class T>
void WeightColumns<T>::rows(int64_t r, int count, int64_t k, int64_t n, const T** out, T* scratch) const {
  T held[kMaxTileRows];
  for (int64_t j = 0; j < n; ++j) {
    const int64_t tap = (k + j) / outputs_, output = (k + j) % outputs_;
    const T* column;
    by_output_.rows(output, 1, tap * channels_ + r, count, &column, held);
    for (int i = 0; i < count; ++i) scratch[i * n + j] = column[i];
  }
  for (int i = 0; i < count; ++i) out[i] = scratch + i * n;
}

template class Patches<float>;
template class Patches<bf16>;
template class WeightColumns<float>;
template class WeightColumns<bf16>;

}  // namespace flux2::gemm
