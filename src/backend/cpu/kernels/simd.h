#pragma once

#include "backend/cpu/cpu_features.h"
#include "backend/cpu/kernels/row_math.h"

namespace flux2::cpu {

// Replaces the row arithmetic with that for the widest vector instructions of this machine.
void install_simd(RowMath<float>& math, const CpuFeatures& features);

// One level each; only those of the architecture are built.
void install_rows_neon(RowMath<float>& math);
void install_rows_avx2(RowMath<float>& math);  // with FMA
void install_rows_avx512(RowMath<float>& math);

}  // namespace flux2::cpu
