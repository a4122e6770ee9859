#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/bpe_tables.h"

namespace flux2 {

// Byte-pair encoding of one word: the neighbours whose merge has the lowest rank, the leftmost of equals, become one
// symbol, again and again until none merge. Appends the ids that remain to `out`. Time n log n in the word's length.
void merge_symbols(const MergeTable& merges, std::span<const int32_t> word, std::vector<int32_t>& out);

}  // namespace flux2
