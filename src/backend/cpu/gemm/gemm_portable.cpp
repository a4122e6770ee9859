#include "backend/cpu/gemm/gemm.h"

namespace flux2 {

namespace gemm {

namespace {

constexpr KernelSet kExact = {.in_f32 = &scalar_f32::kKernel};
constexpr KernelSet kFast = {.in_f32 = &scalar_f32::kKernel, .direct = true};

Choice choose(Profile profile) { return profile == Profile::Exact ? kChoice<kExact> : kChoice<kFast>; }

}  // namespace

const KernelSet& kernel_set(const CpuFeatures&, Profile profile) { return *choose(profile).set; }

std::vector<const MicroKernel<float>*> f32_kernels(const CpuFeatures&) { return {&scalar_f32::kKernel}; }
std::vector<const MicroKernel<bf16>*> bf16_kernels(const CpuFeatures&) { return {}; }
std::vector<const MicroKernel<int8_t>*> int8_kernels(const CpuFeatures&) { return {}; }
std::vector<const BlockKernel*> block_kernels(const CpuFeatures&) { return {}; }

}  // namespace gemm

void install_gemm(Kernels& kernels, const CpuFeatures&, Profile profile) { gemm::choose(profile).install(kernels); }

}  // namespace flux2
