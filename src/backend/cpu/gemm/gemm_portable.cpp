#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/kernel_scalar.h"

namespace flux2 {

namespace gemm {

namespace {

constexpr KernelSet kExact = {.in_f32 = &scalar_f32::kKernel};
constexpr KernelSet kFast = {.in_f32 = &scalar_f32::kKernel, .direct = true};

}  // namespace

std::vector<const MicroKernel<float>*> f32_kernels(const CpuFeatures&) { return {&scalar_f32::kKernel}; }
std::vector<const MicroKernel<bf16>*> bf16_kernels(const CpuFeatures&) { return {}; }
std::vector<const MicroKernel<int8_t>*> int8_kernels(const CpuFeatures&) { return {}; }
std::vector<const BlockKernel*> block_kernels(const CpuFeatures&) { return {}; }

}  // namespace gemm

void install_gemm(Kernels& kernels, const CpuFeatures&, Profile profile) {
  if (profile == Profile::Exact) gemm::install<gemm::kExact>(kernels);
  else gemm::install<gemm::kFast>(kernels);
}

}  // namespace flux2
