#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/kernel_scalar.h"
#include "backend/cpu/gemm/kernel_x86.h"

namespace flux2 {

namespace gemm {

namespace {

constexpr KernelSet kScalarExact = {&scalar_f32::kKernel, nullptr, false};
constexpr KernelSet kScalarFast = {&scalar_f32::kKernel, nullptr, true};
constexpr KernelSet kAvx2Exact = {&avx2::kKernel, nullptr, false};
constexpr KernelSet kAvx2Fast = {&avx2::kKernel, nullptr, true};
constexpr KernelSet kAvx512Exact = {&avx512::kKernel, nullptr, false};
constexpr KernelSet kAvx512Fast = {&avx512::kKernel, nullptr, true};
constexpr KernelSet kAvx512Bf16Fast = {&avx512::kKernel, &avx512_bf16::kKernel, true};

bool has_avx2(const CpuFeatures& features) { return features.avx2 && features.fma; }
bool has_avx512_bf16(const CpuFeatures& features) { return features.avx512f && features.avx512bf16; }

}  // namespace

std::vector<const MicroKernel<float>*> f32_kernels(const CpuFeatures& features) {
  std::vector<const MicroKernel<float>*> kernels = {&scalar_f32::kKernel};
  if (has_avx2(features)) kernels.push_back(&avx2::kKernel);
  if (features.avx512f) kernels.push_back(&avx512::kKernel);
  return kernels;
}

std::vector<const MicroKernel<bf16>*> bf16_kernels(const CpuFeatures& features) {
  std::vector<const MicroKernel<bf16>*> kernels;
  if (has_avx512_bf16(features)) kernels.push_back(&avx512_bf16::kKernel);
  return kernels;
}

}  // namespace gemm

void install_gemm(Kernels& kernels, const CpuFeatures& features, Profile profile) {
  using namespace gemm;
  const bool exact = profile == Profile::Exact;
  if (has_avx512_bf16(features)) exact ? install<kAvx512Exact>(kernels) : install<kAvx512Bf16Fast>(kernels);
  else if (features.avx512f) exact ? install<kAvx512Exact>(kernels) : install<kAvx512Fast>(kernels);
  else if (has_avx2(features)) exact ? install<kAvx2Exact>(kernels) : install<kAvx2Fast>(kernels);
  else exact ? install<kScalarExact>(kernels) : install<kScalarFast>(kernels);
}

}  // namespace flux2
