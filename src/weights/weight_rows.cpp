#include "weights/weight_rows.h"

#include <algorithm>
#include <cstring>

namespace flux2 {

WeightRows::WeightRows(const NamedWeights& weights, const std::string& canonical) {
  for (const StoredRows& piece : weights.pieces(canonical)) {
    starts_.push_back(count_);
    count_ += piece.rows.size();
    pieces_.push_back({piece, values_of(weights.source(), *piece.tensor)});
  }
  const Shape shape = weights.shape(canonical);
  width_ = shape.rank() == 0 ? 1 : shape.with(0, 1).numel();
}

bool WeightRows::stores(DType dtype) const {
  return std::all_of(pieces_.begin(), pieces_.end(), [&](const Piece& p) { return !p.values && p.rows.tensor->dtype == dtype; });
}

void WeightRows::values(int64_t row, float* out) const {
  const auto [piece, at] = find(row);
  if (piece->values) piece->values->rows(at, at + 1, out);
  else read_row(*piece->rows.tensor, at, out);
}

void WeightRows::bytes(int64_t row, DType dtype, std::byte* out) const {
  const auto [piece, at] = find(row);
  const auto size = static_cast<size_t>(bytes_for(dtype, width_));
  std::memcpy(out, piece->rows.tensor->bytes.data() + static_cast<size_t>(at) * size, size);
}

std::pair<const WeightRows::Piece*, int64_t> WeightRows::find(int64_t row) const {
  const auto next = std::upper_bound(starts_.begin(), starts_.end(), row);
  const auto i = static_cast<size_t>(next - starts_.begin()) - 1;
  return {&pieces_[i], row - starts_[i] + pieces_[i].rows.rows.begin};
}

}  // namespace flux2
