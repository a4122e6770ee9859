#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace flux2 {

// Rounds `count` values (whole blocks) to a block type. Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 are bit-identical to ggml. Types with 256
// elements per block, and IQ4_NL, search for scales with a small sum of squared errors (block_search.h). A block that contains
// NaN or infinity gets the scale NaN, so the damage stays visible.
void encode_blocks(DType dtype, const float* x, int64_t count, void* out);

}  // namespace flux2
