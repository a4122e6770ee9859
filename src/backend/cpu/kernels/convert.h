#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace flux2::cpu {

// n elements lying `stride` elements apart become contiguous values of V, which is float, double or int64_t.
// Block types must be contiguous and start at a block.
template <class V>
void load(DType dtype, const void* x, int64_t stride, int64_t n, V* values);

// The other way, to any plain dtype. Floats become integers by dropping the fraction, keeping to the range (NaN
// becomes 0), and fp8 by rounding to nearest even, keeping to the largest finite value.
template <class V>
void store(DType dtype, const V* values, void* y, int64_t stride, int64_t n);

}  // namespace flux2::cpu
