#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace flux2 {

// Whether read_values() knows the type: every float, int8 and every block type.
bool is_readable(DType dtype);

// `count` stored elements as f32. `data` needs no alignment; of a block type count is a whole number of blocks.
void read_values(DType dtype, const void* data, int64_t count, float* out);

}  // namespace flux2
