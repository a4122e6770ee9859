#pragma once

#include <cstdint>
#include <vector>

namespace flux2 {

struct IndexRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// The slice of a tensor that one of several ranks keeps: `axis` is cut into `count` equal slices and slice `rank` is taken. With
// `parts`, extents that sum to the axis, each part is cut separately and the slices are joined. A fused matrix with rows q, k, v,
// mlp of h, h, h, 6h thus gives every rank a share of each.
struct Shard {
  int axis = 0;
  int rank = 0;
  int count = 1;
  std::vector<int64_t> parts = {};

  bool whole() const { return count == 1; }

  // The indices of an axis of `extent` that this rank keeps, ascending. Ends must be multiples of `unit`.
  std::vector<IndexRange> ranges(int64_t extent, int64_t unit = 1) const;
};

}  // namespace flux2
