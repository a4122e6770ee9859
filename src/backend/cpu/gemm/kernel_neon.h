#pragma once

#include "backend/cpu/gemm/micro_kernel.h"

namespace flux2::gemm {

namespace neon_f32 {
extern const MicroKernel<float> kKernel;
}
namespace neon_bf16 {
extern const MicroKernel<bf16> kKernel;  // needs the bf16 extension
}
namespace neon_int8 {
extern const MicroKernel<int8_t> kKernel;  // needs i8mm
}
namespace neon_blocks {
extern const BlockKernel kKernel;  // needs i8mm
}

}  // namespace flux2::gemm
