#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace flux2 {

// Up to eight extents (or strides), by value. Negative axes count from the end.
class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return dims_[static_cast<size_t>(axis_of(axis))]; }
  int64_t& operator[](int axis) { return dims_[static_cast<size_t>(axis_of(axis))]; }
  int axis_of(int axis) const;  // 0 … rank-1, checked

  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + rank_; }

  int64_t numel() const;  // 1 for rank 0
  Shape strides() const;  // row-major, in elements
  Shape with(int axis, int64_t extent) const;
  Shape first(int n) const;
  Shape append(int64_t extent) const;

  bool operator==(const Shape& other) const;
  std::string str() const;  // [2, 3]

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

// The shape both operands are stretched to: extents are aligned at the end and must be equal or 1.
Shape broadcast_shape(const Shape& a, const Shape& b);

}  // namespace flux2

template <>
struct fmt::formatter<flux2::Shape> : fmt::formatter<std::string> {
  auto format(const flux2::Shape& shape, fmt::format_context& context) const {
    return fmt::formatter<std::string>::format(shape.str(), context);
  }
};
