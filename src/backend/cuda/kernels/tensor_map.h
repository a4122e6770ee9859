#pragma once

#include <cuda.h>

#include "tensor/tensor.h"

namespace flux2::cuda {

// A BF16 matrix that the copy engine of sm_90a can walk: its rows are contiguous, 16-byte aligned and a multiple of 16 bytes
// long.
bool is_walkable(const Tensor& t);

// Describes such a matrix [rows, columns] for the copy engine, which moves boxes of `box_rows` × `box_columns` and swizzles each
// row of a box: box_columns is 16, 32 or 64, so that a row has as many bytes as the swizzle. What lies outside the matrix reads
// as zero and is not written.
CUtensorMap tensor_map(const Tensor& t, int box_columns, int box_rows);

// Of the current GPU.
int multiprocessors();
bool is_hopper();  // sm_90, whose own instructions hopper.cuh wraps

}  // namespace flux2::cuda
