#include "pipeline/seamless.h"

#include <algorithm>

#include "base/error.h"
#include "ops/arithmetic.h"
#include "ops/view.h"

namespace flux2 {

namespace {

// In positions. The decoder's convolutions hardly reach farther; its attention sees everything anyway.
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

// How far each position is from the nearest edge of a window that begins at `shift`, from nearly 0 to 1.
std::vector<float> from_edge(int64_t length, int64_t shift) {
  std::vector<float> distance(static_cast<size_t>(length));
  for (int64_t i = 0; i < length; ++i) {
    const int64_t seen = (i + shift) % length;
    distance[static_cast<size_t>(i)] = static_cast<float>(2 * std::min(seen, length - 1 - seen) + 1) / static_cast<float>(length);
  }
  return distance;
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

SeamlessVelocity::SeamlessVelocity(Stream& stream, const Request& request) {
  if (!request.tile_x && !request.tile_y) return;
  const int64_t rows = request.rows(), columns = request.columns();
  const auto shifts = [](bool wraps, int64_t length) {
    return wraps && length > 1 ? std::vector<int64_t>{0, length / 2} : std::vector<int64_t>{0};
  };
  const auto downs = shifts(request.tile_y, rows), rights = shifts(request.tile_x, columns);
  std::vector<std::vector<float>> weights;
  std::vector<float> sum(static_cast<size_t>(rows * columns));
  for (const int64_t down : downs)
    for (const int64_t right : rights) {
      const auto vertical = from_edge(rows, down), horizontal = from_edge(columns, right);
      auto& weight = weights.emplace_back(sum.size());
      for (size_t i = 0; i < sum.size(); ++i) {
        const size_t row = i / static_cast<size_t>(columns), column = i % static_cast<size_t>(columns);
        weight[i] = (request.tile_y ? vertical[row] : 1.0f) * (request.tile_x ? horizontal[column] : 1.0f);
        sum[i] += weight[i];
      }
    }
  for (size_t k = 0; k < weights.size(); ++k) {
    for (size_t i = 0; i < sum.size(); ++i) weights[k][i] /= sum[i];
    views_.push_back({GridShift(rows, columns, downs[k / rights.size()], rights[k % rights.size()]),
                      Tensor::from<float>(stream, DType::F32, {1, rows * columns, 1}, weights[k])});
  }
}

Tensor SeamlessVelocity::operator()(const Tensor& x, const std::function<Tensor(const Tensor&)>& velocity) const {
  if (views_.empty()) return velocity(x);
  Tensor sum;
  for (const View& view : views_) {
    const Tensor part = view.shift.undo(velocity(view.shift(x))) * view.weight;
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

WrappedGrid::WrappedGrid(const Request& request)
    : rows_(request.rows()),
      columns_(request.columns()),
      margin_rows_(request.tile_y ? std::min(kMargin, rows_) : 0),
      margin_columns_(request.tile_x ? std::min(kMargin, columns_) : 0) {}

Tensor WrappedGrid::wrapped(const Tensor& tokens) const {
  if (!is_wrapped()) return tokens;
  const Tensor grid = tokens.reshaped({tokens.dim(0), rows_, columns_, tokens.dim(2)});
  const Tensor whole = with_margin(with_margin(grid, 1, margin_rows_), 2, margin_columns_).contiguous();
  return whole.reshaped({tokens.dim(0), rows() * columns(), tokens.dim(2)});
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
