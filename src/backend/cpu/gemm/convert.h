#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace flux2::gemm {

template <class T>
inline constexpr DType kDTypeOf = DType::F32;
template <>
inline constexpr DType kDTypeOf<bf16> = DType::BF16;

// True for the dtypes convert() reads: F32, F16, BF16, F8_E4M3, F8_E5M2, I8 and every block type.
bool is_convertible(DType dtype);

// Elements [start, start + count) of a row stored as `dtype`, rounded to T (float or bf16). The row of a block type
// begins at a whole block; start and count need not.
template <class T>
void convert(DType dtype, const void* row, int64_t start, int64_t count, T* out);

// Where element `start` of a row lies, when the row already holds T; otherwise the elements converted into scratch.
// Nothing converts to int8_t.
template <class T>
const T* as_type(DType dtype, const void* row, int64_t start, int64_t count, T* scratch);

// count f32 values stored as `dtype`, one of F32, BF16, F16.
void store(const float* values, int64_t count, DType dtype, void* out);

}  // namespace flux2::gemm
