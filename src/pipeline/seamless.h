#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "pipeline/decoded_picture.h"
#include "pipeline/request.h"

namespace flux2 {

// Seamless images: copies side by side show no edge. Neither the transformer nor the decoder knows that opposite edges meet.

// Rolls tokens [N, rows · columns, C] by whole positions, as if around a cylinder.
class GridShift {
 public:
  GridShift(int64_t rows, int64_t columns, int64_t down, int64_t right);

  Tensor operator()(const Tensor& tokens) const;
  Tensor undo(const Tensor& tokens) const;

 private:
  int64_t rows_, columns_, down_, right_;  // 0 ≤ down < rows, 0 ≤ right < columns
};

// The velocity of a seamless image: the transformer sees the image also shifted by half of it, for both directions in four ways.
// The results are blended, each with a weight that falls towards the edges it saw. So no edge is visible anywhere, and a step
// takes two or four passes.
class SeamlessVelocity {
 public:
  SeamlessVelocity(Stream& stream, const Request& request);

  // velocity(x) for tokens [N, rows · columns, C]; called once for images with edges.
  Tensor operator()(const Tensor& x, const std::function<Tensor(const Tensor&)>& velocity) const;

 private:
  struct View {
    GridShift shift;
    Tensor weight;  // [1, rows · columns, 1]; the weights of all views have the sum 1
  };
  std::vector<View> views_;  // empty for images with edges
};

// Latents with a margin that repeats the opposite side, so that the decoder sees no edge either. Those of other images stay as
// they are.
class WrappedGrid {
 public:
  explicit WrappedGrid(const Request& request);

  bool is_wrapped() const { return margin_rows_ > 0 || margin_columns_ > 0; }
  int64_t rows() const { return rows_ + 2 * margin_rows_; }
  int64_t columns() const { return columns_ + 2 * margin_columns_; }
  Tensor wrapped(const Tensor& tokens) const;  // [1, rows · columns, C] of the image → of the whole grid
  Planes middle(const Planes& decoded) const;  // without the margin

 private:
  int64_t rows_, columns_, margin_rows_, margin_columns_;
};

}  // namespace flux2
