#include "tensor/shape.h"

#include <algorithm>

#include "base/error.h"

namespace flux2 {

Shape::Shape(std::initializer_list<int64_t> dims) : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  require(dims.size() <= kMaxRank, "a tensor has at most {} axes, not {}", kMaxRank, dims.size());
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

int Shape::axis_of(int axis) const {
  const int resolved = axis < 0 ? axis + rank_ : axis;
  require(resolved >= 0 && resolved < rank_, "axis {} of a tensor with {} axes", axis, rank_);
  return resolved;
}

int64_t Shape::numel() const {
  int64_t n = 1;
  for (int64_t d : *this) n *= d;
  return n;
}

Shape Shape::strides() const {
  Shape s = *this;
  int64_t step = 1;
  for (int i = rank_ - 1; i >= 0; --i) {
    s.dims_[static_cast<size_t>(i)] = step;
    step *= dims_[static_cast<size_t>(i)];
  }
  return s;
}

Shape Shape::with(int axis, int64_t extent) const {
  Shape s = *this;
  s[axis] = extent;
  return s;
}

Shape Shape::first(int n) const { return Shape(std::span<const int64_t>(dims_.data(), static_cast<size_t>(n))); }

Shape Shape::append(int64_t extent) const {
  require(rank_ < kMaxRank, "a tensor has at most {} axes", kMaxRank);
  Shape s = *this;
  s.dims_[static_cast<size_t>(s.rank_++)] = extent;
  return s;
}

bool Shape::operator==(const Shape& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

std::string Shape::str() const { return fmt::format("[{}]", fmt::join(begin(), end(), ", ")); }

Shape broadcast_shape(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Shape out;
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank()), ib = i - (rank - b.rank());
    const int64_t da = ia < 0 ? 1 : a[ia], db = ib < 0 ? 1 : b[ib];
    require(da == db || da == 1 || db == 1, "shapes {} and {} do not broadcast", a, b);
    out = out.append(da == 1 ? db : da);
  }
  return out;
}

}  // namespace flux2
