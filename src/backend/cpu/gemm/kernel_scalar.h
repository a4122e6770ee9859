#pragma once

#include "backend/cpu/gemm/micro_kernel.h"

namespace flux2::gemm::scalar_f32 {

// Plain C++ for machines without a kernel of their own.
extern const MicroKernel<float> kKernel;

}  // namespace flux2::gemm::scalar_f32
