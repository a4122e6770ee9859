#pragma once

#include "backend/cpu/gemm/kernel_set.h"
#include "base/thread_pool.h"

namespace flux2::gemm {

// The micro-kernel that products of many rows with weights of this dtype run on.
const TileKernel& kernel_for(const KernelSet& set, DType weight);

// The rate that all threads of a pool together reach with only the kernel's instruction, in operations per second (a multiply-add
// counts as 2). It is the best of several short runs, because other load only makes a machine slower. 0 for a kernel without such
// an instruction.
double measure_ceiling(const TileKernel& kernel, ThreadPool& threads);

}  // namespace flux2::gemm
