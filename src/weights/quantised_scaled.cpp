#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "weights/quantised_kinds.h"
#include "weights/read_values.h"

namespace flux2 {

namespace {

// Scales of blocks of `rows` × `columns` elements, `stride` of them to a row of blocks.
struct Grid {
  int64_t rows = 1, columns = 1, stride = 1;
};

// The side of blocks that cut `extent` into `count`: 128 where that fits, else the power of two that does.
std::optional<int64_t> side_of(int64_t extent, int64_t count) {
  if (count == extent) return 1;
  const auto fits = [&](int64_t side) { return (extent + side - 1) / side == count; };
  if (fits(128)) return 128;
  for (int64_t side = 2; side <= 4096; side *= 2)
    if (fits(side)) return side;
  if (count == 1) return extent;
  return std::nullopt;
}

Grid grid_of(const StoredTensor& w, const StoredTensor& scale) {
  const Shape& s = scale.shape;
  const int64_t rows = w.shape[0], columns = w.shape[1];
  if (s.numel() == 1) return {rows, columns, 1};
  if (s == Shape{rows}) return {1, columns, 1};
  if (s.rank() == 3 && s[0] == rows && s[2] == 1 && s[1] > 0 && columns % s[1] == 0) return {1, columns / s[1], s[1]};
  if (s.rank() == 2) {
    const auto height = side_of(rows, s[0]), width = side_of(columns, s[1]);
    if (height && width) return {*height, *width, s[1]};
  }
  fail(ErrorCode::Incompatible, "the scales {} of shape {} fit no way of scaling {} of shape {}", scale.name, s, w.name, w.shape);
}

class ScaledValues final : public QuantisedValues {
 public:
  ScaledValues(const StoredTensor& weight, const StoredTensor& scale, float factor)
      : weight_(weight), scale_(scale), grid_(grid_of(weight, scale)), factor_(factor) {
    if (!scale.dtype || !is_float(*scale.dtype))
      fail(ErrorCode::Incompatible, "the scales {} are stored as {}, expected F32, F16 or BF16", scale.name, scale.dtype_name);
  }

  void rows(int64_t begin, int64_t end, float* out) const override {
    const int64_t columns = weight_.shape[1];
    std::vector<float> scales(static_cast<size_t>(grid_.stride));
    int64_t loaded = -1;
    for (int64_t r = begin; r < end; ++r, out += columns) {
      read_values(*weight_.dtype, weight_.bytes.data() + r * columns, columns, out);
      if (const int64_t line = r / grid_.rows; line != loaded) load_scales(loaded = line, scales);
      for (int64_t c = 0; c < columns; ++c) out[c] *= scales[static_cast<size_t>(c / grid_.columns)];
    }
  }

  std::optional<DType> block_type() const override {
    const bool fits = weight_.dtype == DType::F8_E4M3 && grid_.columns % 128 == 0 && weight_.shape[1] % 128 == 0;
    return fits ? std::optional(DType::F8_128) : std::nullopt;
  }

  void blocks(int64_t row, std::byte* out) const override {
    const int64_t columns = weight_.shape[1];
    std::vector<float> scales(static_cast<size_t>(grid_.stride));
    load_scales(row / grid_.rows, scales);
    const std::byte* from = weight_.bytes.data() + row * columns;
    for (int64_t c = 0; c < columns; c += 128, out += 132) {
      std::memcpy(out, &scales[static_cast<size_t>(c / grid_.columns)], sizeof(float));
      std::memcpy(out + 4, from + c, 128);
    }
  }

 private:
  void load_scales(int64_t line, std::vector<float>& scales) const {
    const auto first = static_cast<size_t>(bytes_for(*scale_.dtype, line * grid_.stride));
    read_values(*scale_.dtype, scale_.bytes.data() + first, grid_.stride, scales.data());
    for (float& s : scales) {
      if (!std::isfinite(s) || s < 0) fail(ErrorCode::BadFile, "{} holds {}, which is not a valid scale", scale_.name, s);
      s *= factor_;
    }
  }

  StoredTensor weight_, scale_;
  Grid grid_;
  float factor_;
};

class RotatedValues final : public QuantisedValues {
 public:
  RotatedValues(std::shared_ptr<const QuantisedValues> values, int64_t columns, int64_t group)
      : values_(std::move(values)), columns_(columns), group_(group) {}

  void rows(int64_t begin, int64_t end, float* out) const override {
    values_->rows(begin, end, out);
    for (int64_t i = 0; i < (end - begin) * columns_; i += group_) rotate(out + i, group_);
  }

 private:
  std::shared_ptr<const QuantisedValues> values_;
  int64_t columns_, group_;
};

}  // namespace

std::shared_ptr<const QuantisedValues> scaled_values(const StoredTensor& weight, const StoredTensor& scale, float factor) {
  return std::make_shared<ScaledValues>(weight, scale, factor);
}

bool scales_rows(const StoredTensor& weight, const StoredTensor& scale) {
  const Shape& s = scale.shape;
  return s.numel() == 1 || s == Shape{weight.shape[0]} || s == Shape{weight.shape[0], 1};
}

// One factor H4 after the other: each mixes four elements that lie `step` apart, half the sum of three less the fourth.
void rotate(float* x, int64_t size) {
  for (int64_t step = 1; step < size; step *= 4)
    for (int64_t start = 0; start < size; start += 4 * step)
      for (int64_t i = start; i < start + step; ++i) {
        float &a = x[i], &b = x[i + step], &c = x[i + 2 * step], &d = x[i + 3 * step];
        const float half = 0.5f * (a + b + c + d);
        const float wa = half - d, wb = half - c, wc = half - b, wd = half - a;
        a = wa, b = wb, c = wc, d = wd;
      }
}

std::shared_ptr<const QuantisedValues> rotated_back(std::shared_ptr<const QuantisedValues> values, int64_t columns,
                                                    int64_t group) {
  bool power = group >= 4;
  for (int64_t g = group; g > 1; g /= 4) power = power && g % 4 == 0;
  if (!power || columns % group != 0)
    fail(ErrorCode::BadFile, "a rotation of groups of {} does not fit rows of {}", group, columns);
  return std::make_shared<RotatedValues>(std::move(values), columns, group);
}

}  // namespace flux2
