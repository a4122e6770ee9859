#include "pipeline/seamless.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/view.h"

namespace flux2 {

namespace {

// Beyond this many positions the decoder's convolutions hardly reach; its attention sees everything anyway.
constexpr int64_t kMargin = 4;

// The part from `first` on comes to the front. grid [N, rows, columns, C].
Tensor rolled(const Tensor& grid, int axis, int64_t first) {
  if (first == 0) return grid;
  const int64_t length = grid.dim(axis);
  return concat({grid.narrowed(axis, first, length - first), grid.narrowed(axis, 0, first)}, axis);
}

Tensor with_margin(const Tensor& grid, int axis, int64_t margin) {
  if (margin == 0) return grid;
  const int64_t length = grid.dim(axis);
  return concat({grid.narrowed(axis, length - margin, margin), grid, grid.narrowed(axis, 0, margin)}, axis);
}

}  // namespace

GridShift::GridShift(int64_t rows, int64_t columns, int64_t down, int64_t right)
    : rows_(rows), columns_(columns), down_(down), right_(right) {
  require(rows > 0 && columns > 0 && down >= 0 && down < rows && right >= 0 && right < columns, "a shift of {}x{} by {},{}", rows,
          columns, down, right);
}

Tensor GridShift::operator()(const Tensor& tokens) const {
  const Tensor grid = tokens.reshaped({tokens.dim(0), rows_, columns_, tokens.dim(2)});
  return rolled(rolled(grid, 1, (rows_ - down_) % rows_), 2, (columns_ - right_) % columns_)
      .contiguous()
      .reshaped(tokens.shape());
}

Tensor GridShift::undo(const Tensor& tokens) const {
  return GridShift(rows_, columns_, (rows_ - down_) % rows_, (columns_ - right_) % columns_)(tokens);
}

GridShift seamless_shift(const Request& request, int step) {
  // Multiples of the golden ratio: edges of any few steps in a row lie far apart.
  constexpr double kGolden = 0.6180339887498949;
  const double part = (step + 1) * kGolden - std::floor((step + 1) * kGolden);
  const auto along = [&](bool wraps, int64_t length) {
    return wraps ? std::min(static_cast<int64_t>(part * static_cast<double>(length)), length - 1) : 0;
  };
  return {request.rows(), request.columns(), along(request.tile_y, request.rows()), along(request.tile_x, request.columns())};
}

WrappedGrid::WrappedGrid(const Request& request, const Tensor& tokens)
    : tokens_(tokens),
      rows_(request.rows()),
      columns_(request.columns()),
      margin_rows_(request.tile_y ? std::min(kMargin, rows_) : 0),
      margin_columns_(request.tile_x ? std::min(kMargin, columns_) : 0) {
  if (!is_wrapped()) return;
  const int64_t channels = tokens.dim(2);
  const Tensor grid = tokens.reshaped({1, rows_, columns_, channels});
  const Tensor wider = with_margin(with_margin(grid, 1, margin_rows_), 2, margin_columns_).contiguous();
  rows_ += 2 * margin_rows_, columns_ += 2 * margin_columns_;
  tokens_ = wider.reshaped({1, rows_ * columns_, channels});
}

Planes WrappedGrid::middle(const Planes& decoded) const {
  const int left = static_cast<int>(16 * margin_columns_), top = static_cast<int>(16 * margin_rows_);
  Planes planes{.width = decoded.width - 2 * left, .height = decoded.height - 2 * top, .values = {}};
  planes.values.reserve(size_t{3} * static_cast<size_t>(planes.width) * static_cast<size_t>(planes.height));
  for (int c = 0; c < 3; ++c)
    for (int y = 0; y < planes.height; ++y) {
      const auto row = decoded.values.begin() + (int64_t{c} * decoded.height + top + y) * decoded.width + left;
      planes.values.insert(planes.values.end(), row, row + planes.width);
    }
  return planes;
}

}  // namespace flux2
