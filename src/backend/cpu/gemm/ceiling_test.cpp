#include "backend/cpu/gemm/ceiling.h"

#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/test_values.h"

namespace flux2::gemm {
namespace {

TEST(GemmCeiling, IsARateOrNothing) {
  const TestCpu s(Profile::Fast, 1);
  ThreadPool one(1);
  const TileKernel& kernel = kernel_for(s.kernels(), DType::BF16);
  const double ceiling = measure_ceiling(kernel, one);
  if (!kernel.instruction) {
    EXPECT_EQ(ceiling, 0);
    return;
  }
  EXPECT_GT(ceiling, 1e6);  // an emulator may be no faster
  EXPECT_LT(ceiling, 1e14);
}

TEST(GemmCeiling, NamesTheKernelOfEachWeight) {
  const KernelSet& exact = kernel_set(CpuFeatures::detect(), Profile::Exact);
  for (DType dtype : {DType::F32, DType::BF16, DType::I8, DType::Q8_0}) EXPECT_EQ(&kernel_for(exact, dtype), exact.in_f32);
  const KernelSet& fast = kernel_set(CpuFeatures::detect(), Profile::Fast);
  EXPECT_EQ(&kernel_for(fast, DType::F32), fast.in_f32);
  if (fast.in_bf16) {
    EXPECT_EQ(&kernel_for(fast, DType::F8_E4M3), fast.in_bf16);
  }
  if (fast.in_int8) {
    EXPECT_EQ(&kernel_for(fast, DType::I8), fast.in_int8);
  }
  if (fast.in_blocks) {
    EXPECT_EQ(&kernel_for(fast, DType::Q4_0), fast.in_blocks);
  }
}

}  // namespace
}  // namespace flux2::gemm
