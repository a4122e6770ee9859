#pragma once

#include "backend/cpu/gemm/row_source.h"
#include "tensor/kernels.h"

namespace flux2::gemm {

// How the taps of a kh × kw kernel map a grid of rows onto the pixels of an image: row (b, i, j) reads at tap (u, v)
// pixel ((i·step − top + u·direction) / divide, …), or zeros where that is outside the image or not whole.
struct TapGrid {
  int64_t rows, columns;   // of the grid
  int64_t kernel_columns;  // kw
  int64_t step, top, left, direction, divide;

  // What each output pixel of a convolution with weights w reads of its input.
  static TapGrid of_input(const Tensor& w, const Tensor& y, const ConvShape& conv);
  // What each input pixel received from: the gradients of the output pixels that read it.
  static TapGrid of_gradient(const Tensor& w, const Tensor& dx, const ConvShape& conv);
};

// Rows of a convolution, gathered from an image [B, H, W, C] as they are asked for: row (b, i, j), elements (u, v, c).
// C consecutive elements are one pixel of the image, so nothing of the size of all patches is ever made.
template <class T>
class Patches final : public RowSource<T> {
 public:
  Patches(const Tensor& image, const TapGrid& grid);

  void rows(int64_t r, int count, int64_t k, int64_t n, const T** out, T* scratch) const override;

 private:
  const T* row(int64_t r, int64_t k, int64_t n, T* scratch) const;
  const std::byte* pixel(int64_t batch, int64_t i, int64_t j, int64_t tap) const;  // null outside

  const std::byte* data_;
  DType dtype_;
  int64_t height_, width_, channels_, element_bytes_;
  TapGrid grid_;
};

// A convolution's weights [O, kh, kw, C] seen from the input: row c, elements (u, v, o).
template <class T>
class WeightColumns final : public RowSource<T> {
 public:
  explicit WeightColumns(const Tensor& w);
  void rows(int64_t r, int count, int64_t k, int64_t n, const T** out, T* scratch) const override;

 private:
  MatrixRows<T> by_output_;  // [O, kh · kw · C]
  int64_t outputs_, channels_;
};

}  // namespace flux2::gemm
