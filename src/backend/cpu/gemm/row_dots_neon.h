#pragma once

#include "backend/cpu/gemm/row_dots.h"

namespace flux2::gemm::neon_rows {

extern const RowDots kDots;  // with the dot products of int8 that came with armv8.2

}  // namespace flux2::gemm::neon_rows
