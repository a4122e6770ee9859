#include <immintrin.h>

#include "backend/cpu/kernels/simd.h"

namespace flux2::cpu {

namespace {
#include "backend/cpu/kernels/vec_avx512.h"

#include "backend/cpu/kernels/row_math_simd.inc"  // which is written with it
}  // namespace

void install_rows_avx512(RowMath<float>& math) { install_rows(math); }

}  // namespace flux2::cpu
