#pragma once

#include "backend/cpu/gemm/kernel_set.h"
#include "base/thread_pool.h"

namespace flux2::gemm {

// The micro-kernel that products of many rows with weights of this dtype run on.
const TileKernel& kernel_for(const KernelSet& set, DType weight);

// What the threads of a pool together reach with nothing but the kernel's instruction, in operations a second (2 for a
// multiply-add): the best of some short runs, because a shared machine is slower most of the time and
// never faster. 0 for a kernel that has no such instruction.
double measure_ceiling(const TileKernel& kernel, ThreadPool& threads);

}  // namespace flux2::gemm
