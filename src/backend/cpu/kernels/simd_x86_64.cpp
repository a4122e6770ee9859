#include "backend/cpu/kernels/simd.h"

namespace flux2::cpu {

void install_simd(RowMath<float>& math, const CpuFeatures& features) {
  if (features.avx2 && features.fma) install_rows_avx2(math);
  if (features.avx512f) install_rows_avx512(math);
}

}  // namespace flux2::cpu
