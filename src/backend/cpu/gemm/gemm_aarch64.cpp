#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/kernel_neon.h"
#include "backend/cpu/gemm/row_dots_neon.h"

namespace flux2 {

namespace gemm {

namespace {

constexpr KernelSet kExact = {.in_f32 = &neon_f32::kKernel};
constexpr KernelSet kFast = {.in_f32 = &neon_f32::kKernel, .direct = true};
constexpr KernelSet kFastDots = {.in_f32 = &neon_f32::kKernel, .row_dots = &neon_rows::kDots, .direct = true};
constexpr KernelSet kFastBf16 = {
    .in_f32 = &neon_f32::kKernel, .in_bf16 = &neon_bf16::kKernel, .row_dots = &neon_rows::kDots, .direct = true};
constexpr KernelSet kFastInt8 = {.in_f32 = &neon_f32::kKernel,
                                 .in_bf16 = &neon_bf16::kKernel,
                                 .in_int8 = &neon_int8::kKernel,
                                 .in_blocks = &neon_blocks::kKernel,
                                 .row_dots = &neon_rows::kDots,
                                 .direct = true};

// Processors with i8mm and without bf16 are not made, because these extensions came together. All of them have dot products.
Choice choose(const CpuFeatures& features, Profile profile) {
  if (profile == Profile::Exact) return kChoice<kExact>;
  if (features.bf16 && features.i8mm) return kChoice<kFastInt8>;
  if (features.bf16) return kChoice<kFastBf16>;
  return features.dotprod ? kChoice<kFastDots> : kChoice<kFast>;
}

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

std::vector<const MicroKernel<int8_t>*> int8_kernels(const CpuFeatures& features) {
  std::vector<const MicroKernel<int8_t>*> kernels;
  if (features.i8mm) kernels.push_back(&neon_int8::kKernel);
  return kernels;
}

std::vector<const BlockKernel*> block_kernels(const CpuFeatures& features) {
  std::vector<const BlockKernel*> kernels;
  if (features.i8mm) kernels.push_back(&neon_blocks::kKernel);
  return kernels;
}

std::vector<const RowDots*> row_dots(const CpuFeatures& features) {
  std::vector<const RowDots*> dots;
  if (features.dotprod) dots.push_back(&neon_rows::kDots);
  return dots;
}

const KernelSet& kernel_set(const CpuFeatures& features, Profile profile) { return *choose(features, profile).set; }

}  // namespace gemm

void install_gemm(Kernels& kernels, const CpuFeatures& features, Profile profile) {
  gemm::choose(features, profile).install(kernels);
}

}  // namespace flux2
