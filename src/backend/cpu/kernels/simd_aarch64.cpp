#include "backend/cpu/kernels/simd.h"

namespace flux2::cpu {

void install_simd(RowMath<float>& math, const CpuFeatures& features) {
  if (features.neon) install_rows_neon(math);
}

}  // namespace flux2::cpu
