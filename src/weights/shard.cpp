#include "weights/shard.h"

#include <numeric>

#include "base/error.h"

namespace flux2 {

std::vector<IndexRange> Shard::ranges(int64_t extent, int64_t unit) const {
  require(count >= 1 && rank >= 0 && rank < count, "shard {} of {}", rank, count);
  const std::vector<int64_t> cut = parts.empty() ? std::vector<int64_t>{extent} : parts;
  require(std::accumulate(cut.begin(), cut.end(), int64_t{0}) == extent, "the parts of a shard do not sum to {}", extent);
  std::vector<IndexRange> kept;
  int64_t start = 0;
  for (int64_t part : cut) {
    check(part >= 0 && part % count == 0, "{} rows or columns cannot be cut into {} equal slices", part, count);
    const int64_t slice = part / count;
    const IndexRange range{start + rank * slice, start + (rank + 1) * slice};
    check(range.begin % unit == 0 && range.end % unit == 0, "a slice from {} to {} cuts through a block of {} elements",
          range.begin, range.end, unit);
    if (!kept.empty() && kept.back().end == range.begin) kept.back().end = range.end;
    else kept.push_back(range);
    start += part;
  }
  return kept;
}

}  // namespace flux2
