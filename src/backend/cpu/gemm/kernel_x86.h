#pragma once

#include "backend/cpu/gemm/micro_kernel.h"

namespace flux2::gemm {

namespace avx2 {
extern const MicroKernel<float> kKernel;  // needs FMA as well
}
namespace avx512 {
extern const MicroKernel<float> kKernel;
}
namespace avx512_bf16 {
extern const MicroKernel<bf16> kKernel;
}

}  // namespace flux2::gemm
