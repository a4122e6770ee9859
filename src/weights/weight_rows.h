#pragma once

#include <memory>
#include <string>
#include <vector>

#include "weights/named_weights.h"
#include "weights/packed_values.h"

namespace flux2 {

// A canonical tensor as rows (indices of the first axis), read one at a time without bringing its pieces together. May be
// read from several threads; the weights must outlive it.
class WeightRows {
 public:
  WeightRows(const NamedWeights& weights, const std::string& canonical);

  int64_t count() const { return count_; }
  int64_t width() const { return width_; }  // elements of a row
  const std::string& stored_as() const { return pieces_.front().rows.tensor->dtype_name; }

  // Whether a row's bytes in that type are what the file has.
  bool stores(DType dtype) const;

  void values(int64_t row, float* out) const;  // whatever it is stored as
  void bytes(int64_t row, DType dtype, std::byte* out) const;

 private:
  struct Piece {
    StoredRows rows;
    std::shared_ptr<const PackedValues> values;
  };
  std::pair<const Piece*, int64_t> find(int64_t row) const;

  std::vector<Piece> pieces_;
  std::vector<int64_t> starts_;
  int64_t count_ = 0, width_ = 1;
};

}  // namespace flux2
