#include "train/block_swap.h"

#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"

namespace flux2 {

namespace {

// How many double and single blocks; none if n is too large.
std::optional<std::pair<int64_t, int64_t>> swapped_of_each(int64_t n, int64_t doubles, int64_t singles) {
  const double ratio = static_cast<double>(singles) / static_cast<double>(doubles);
  auto d = static_cast<int64_t>(std::nearbyint(static_cast<double>(n) / (1 + ratio / 2)));  // half to even
  auto s = static_cast<int64_t>(std::nearbyint(static_cast<double>(d) * ratio));
  if (2 * doubles < singles) {
    for (; d >= 1 && d > doubles - 2; --d) s += 2;
  } else {
    for (; s >= 2 && s > singles - 2; s -= 2) ++d;
  }
  if (d == 0 && s == 0) (singles >= doubles ? s : d) = 1;
  // Two blocks of each list stay, except in toys.
  const int64_t most_d = doubles > 2 ? doubles - 2 : doubles, most_s = singles > 2 ? singles - 2 : singles;
  if (d > most_d || s > most_s) return std::nullopt;
  return std::pair{d, s};
}

}  // namespace

StreamedBlocks spread_blocks(size_t count, size_t blocks) {
  StreamedBlocks numbers;
  for (size_t i = 0; i < count; ++i) numbers.push_back((2 * i + 1) * blocks / (2 * count));
  return numbers;
}

StreamedBlocks blocks_to_swap(int64_t n, int64_t doubles, int64_t singles) {
  check(n >= 0, "blocks_to_swap must not be negative, not {}", n);
  if (n == 0) return {};
  const auto found = swapped_of_each(n, doubles, singles);
  if (!found) {
    int64_t largest = 0;
    for (int64_t smaller = n - 1; smaller > 0 && largest == 0; --smaller)
      if (swapped_of_each(smaller, doubles, singles)) largest = smaller;
    check(largest > 0, "this model is too small for blocks_to_swap: {} double and {} single blocks", doubles, singles);
    throw Error(ErrorCode::InvalidArgument, fmt::format("blocks_to_swap {} is too large for this model", n),
                Hint("use {0} or less", {set_option("blocks_to_swap", fmt::format("{}", largest))}));
  }
  StreamedBlocks numbers = spread_blocks(static_cast<size_t>(found->first), static_cast<size_t>(doubles));
  for (const size_t single : spread_blocks(static_cast<size_t>(found->second), static_cast<size_t>(singles)))
    numbers.push_back(static_cast<size_t>(doubles) + single);
  return numbers;
}

}  // namespace flux2
