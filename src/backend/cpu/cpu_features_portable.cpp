#include "backend/cpu/cpu_features.h"
#include "backend/cpu/kernels/simd.h"

// Machines for which no vector code is written run the plain kernels.
namespace flux2 {

CpuFeatures CpuFeatures::detect() { return {}; }

void cpu::install_simd(RowMath<float>&, const CpuFeatures&) {}

}  // namespace flux2
