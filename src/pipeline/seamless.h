#pragma once

#include <cstdint>

#include "pipeline/decoded_picture.h"
#include "pipeline/request.h"

namespace flux2 {

// Seamless images: copies side by side show no edge. Nothing in the transformer knows that opposite edges meet, so every step
// sees the image shifted by another amount, as if rolled around a cylinder. What is an edge in one step is in the middle in the
// others.

// Rolls tokens [N, rows · columns, C] by whole positions.
class GridShift {
 public:
  GridShift(int64_t rows, int64_t columns, int64_t down, int64_t right);

  bool is_none() const { return down_ == 0 && right_ == 0; }
  Tensor operator()(const Tensor& tokens) const;
  Tensor undo(const Tensor& tokens) const;

 private:
  int64_t rows_, columns_, down_, right_;  // 0 ≤ down < rows, 0 ≤ right < columns
};

// The shift of step `step`; none for images with edges.
GridShift seamless_shift(const Request& request, int step);

// Latents with a margin that repeats the opposite side, so that the decoder sees no edge either. Those of other images stay as
// they are.
class WrappedGrid {
 public:
  WrappedGrid(const Request& request, const Tensor& tokens);  // [1, rows · columns, C]

  const Tensor& tokens() const { return tokens_; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  bool is_wrapped() const { return margin_rows_ > 0 || margin_columns_ > 0; }
  Planes middle(const Planes& decoded) const;  // without the margin

 private:
  Tensor tokens_;
  int64_t rows_, columns_, margin_rows_, margin_columns_;
};

}  // namespace flux2
