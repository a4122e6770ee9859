#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace flux2 {

// Blocks of the transformer whose weights are streamed from the host, by number; double blocks come first.
using StreamedBlocks = std::vector<size_t>;

// Those of `blocks_to_swap n`, which counts a double block twice as much as a single one (training.md 6.3). They are spread
// evenly over each list, so that copies hide behind blocks that stay. Throws InvalidArgument with the largest n if n is too
// large.
StreamedBlocks blocks_to_swap(int64_t n, int64_t double_blocks, int64_t single_blocks);

// `count` of all blocks, spread evenly.
StreamedBlocks spread_blocks(size_t count, size_t blocks);

}  // namespace flux2
