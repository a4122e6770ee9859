#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/kernel_scalar.h"
#include "backend/cpu/gemm/kernel_x86.h"

namespace flux2 {

namespace gemm {

namespace {

constexpr KernelSet kScalarExact = {.in_f32 = &scalar_f32::kKernel};
constexpr KernelSet kScalarFast = {.in_f32 = &scalar_f32::kKernel, .direct = true};
constexpr KernelSet kAvx2Exact = {.in_f32 = &avx2::kKernel};
constexpr KernelSet kAvx2Fast = {.in_f32 = &avx2::kKernel, .direct = true};
constexpr KernelSet kAvx512Exact = {.in_f32 = &avx512::kKernel};
constexpr KernelSet kAvx512Fast = {.in_f32 = &avx512::kKernel, .direct = true};
constexpr KernelSet kAvx512Bf16Fast = {.in_f32 = &avx512::kKernel, .in_bf16 = &avx512_bf16::kKernel, .direct = true};

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

std::vector<const MicroKernel<int8_t>*> int8_kernels(const CpuFeatures&) { return {}; }
std::vector<const BlockKernel*> block_kernels(const CpuFeatures&) { return {}; }

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
