#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/kernel_neon.h"
#include "backend/cpu/gemm/kernel_scalar.h"

namespace flux2 {

namespace gemm {

namespace {

constexpr KernelSet kExact = {&neon_f32::kKernel, nullptr, false};
constexpr KernelSet kFast = {&neon_f32::kKernel, nullptr, true};
constexpr KernelSet kFastBf16 = {&neon_f32::kKernel, &neon_bf16::kKernel, true};

}  // namespace

std::vector<const MicroKernel<float>*> f32_kernels(const CpuFeatures& features) {
  std::vector<const MicroKernel<float>*> kernels = {&scalar_f32::kKernel};
  if (features.neon) kernels.push_back(&neon_f32::kKernel);
  return kernels;
}

std::vector<const MicroKernel<bf16>*> bf16_kernels(const CpuFeatures& features) {
  std::vector<const MicroKernel<bf16>*> kernels;
  if (features.bf16) kernels.push_back(&neon_bf16::kKernel);
  return kernels;
}

}  // namespace gemm

void install_gemm(Kernels& kernels, const CpuFeatures& features, Profile profile) {
  if (profile == Profile::Exact) gemm::install<gemm::kExact>(kernels);
  else if (features.bf16) gemm::install<gemm::kFastBf16>(kernels);
  else gemm::install<gemm::kFast>(kernels);
}

}  // namespace flux2
