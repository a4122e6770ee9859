#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace flux2::cpu {

// Reads n elements that are `stride` elements apart into contiguous values of V (float, double or int64_t). Block types must be
// contiguous and start at a block.
template <class V>
void load(DType dtype, const void* x, int64_t stride, int64_t n, V* values);

// Writes contiguous values to elements of any dtype that is not a block type. Conversion to integers truncates and clamps to the
// range; NaN becomes 0. Conversion to fp8 rounds to nearest even and clamps to the largest finite value.
template <class V>
void store(DType dtype, const V* values, void* y, int64_t stride, int64_t n);

}  // namespace flux2::cpu
