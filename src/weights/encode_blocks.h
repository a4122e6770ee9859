#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace flux2 {

// Rounds `count` values (whole blocks) to a block type. Q4_0 to Q8_0 are what ggml makes of the same numbers, bit for bit.
// Types of 256 elements, and IQ4_NL, search their scales for a small sum of squared errors (block_search.h). A block that
// holds something other than numbers gets the scale NaN, and shows.
void encode_blocks(DType dtype, const float* x, int64_t count, void* out);

}  // namespace flux2
