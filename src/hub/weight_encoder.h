#pragma once

#include <vector>

#include "base/thread_pool.h"
#include "hub/quantisation.h"
#include "weights/named_weights.h"

namespace flux2 {

// Sums of squares of the original values and of the rounding errors.
struct SquaredError {
  double error = 0, norm = 0;

  void add(const SquaredError& other) { error += other.error, norm += other.norm; }
  double relative() const;  // ‖stored − original‖ / ‖original‖
};

// Converts selected rows of a weight to a storage type, one row at a time. If a type needs information about all rows (the
// scales), they are read once by the constructor. `rows` must outlive it.
class WeightEncoder {
 public:
  WeightEncoder(Quantisation type, const WeightRows& rows, std::vector<int64_t> chosen, ThreadPool& threads);

  int64_t count() const { return static_cast<int64_t>(chosen_.size()); }
  size_t row_bytes() const;
  bool is_copy() const { return copy_; }  // whether the file has these very bytes

  // Row i of the chosen ones. From several threads at once.
  SquaredError encode(int64_t i, std::byte* out) const;

  // The scales beside the values: of a tensor, of rows, of blocks, row by row; of Nvfp4 the one of the whole.
  const std::vector<float>& scales() const { return scales_; }
  // Of Nvfp4 the e4m3 scales in tiles of 128 × 4, as tensor cores read them, padded with zeros.
  std::vector<std::byte> tiled_scales(ThreadPool& threads) const;

 private:
  void find_scales(ThreadPool& threads);

  Quantisation type_;
  const WeightRows& rows_;
  std::vector<int64_t> chosen_;
  bool copy_ = false;
  std::vector<float> largest_, scales_;  // the largest magnitude of what shares a scale; the scale
  int64_t scale_columns_ = 1;            // scales of a row of blocks
};

}  // namespace flux2
