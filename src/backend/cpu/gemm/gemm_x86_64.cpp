#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/kernel_x86.h"

namespace flux2 {

namespace gemm {

namespace {

constexpr KernelSet kScalarExact = {.in_f32 = &scalar_f32::kKernel};
constexpr KernelSet kScalarFast = {.in_f32 = &scalar_f32::kKernel, .direct = true};
constexpr KernelSet kAvx2Exact = {.in_f32 = &avx2::kKernel};
constexpr KernelSet kAvx2Fast = {.in_f32 = &avx2::kKernel, .row_dots = &avx2::kRowDots, .direct = true};
constexpr KernelSet kAvxVnniFast = {.in_f32 = &avx2::kKernel,
                                    .in_int8 = &avx_vnni::kInt8,
                                    .in_blocks = &avx_vnni::kBlocks,
                                    .row_dots = &avx2::kRowDots,
                                    .direct = true};
constexpr KernelSet kAvx512Exact = {.in_f32 = &avx512::kKernel};
constexpr KernelSet kAvx512Fast = {.in_f32 = &avx512::kKernel, .row_dots = &avx2::kRowDots, .direct = true};
constexpr KernelSet kAvx512VnniFast = {.in_f32 = &avx512::kKernel,
                                       .in_int8 = &avx512_vnni::kInt8,
                                       .in_blocks = &avx512_vnni::kBlocks,
                                       .row_dots = &avx2::kRowDots,
                                       .direct = true};
constexpr KernelSet kAvx512Bf16Fast = {.in_f32 = &avx512::kKernel,
                                       .in_bf16 = &avx512_bf16::kKernel,
                                       .in_int8 = &avx512_vnni::kInt8,
                                       .in_blocks = &avx512_vnni::kBlocks,
                                       .row_dots = &avx2::kRowDots,
                                       .direct = true};
// Blocks are decoded to bf16 here: the tile unit multiplies that faster than VNNI multiplies integers, and its own
// integer sums would have to leave it for scaling after every 32 products.
constexpr KernelSet kAmxFast = {
    .in_f32 = &avx512::kKernel, .in_bf16 = &amx::kBf16, .in_int8 = &amx::kInt8, .row_dots = &avx2::kRowDots, .direct = true};

bool has_avx2(const CpuFeatures& features) { return features.avx2 && features.fma; }
bool has_avx_vnni(const CpuFeatures& features) { return has_avx2(features) && features.avxvnni; }
bool has_avx512_bf16(const CpuFeatures& features) { return features.avx512bf16 && features.avx512vnni; }
bool has_amx(const CpuFeatures& features) { return features.avx512f && features.amx_bf16 && features.amx_int8; }

Choice choose(const CpuFeatures& features, Profile profile) {
  const bool exact = profile == Profile::Exact;
  if (features.avx512f && exact) return kChoice<kAvx512Exact>;
  if (has_amx(features)) return kChoice<kAmxFast>;
  if (has_avx512_bf16(features) && !features.slow_avx512bf16) return kChoice<kAvx512Bf16Fast>;
  if (features.avx512vnni) return kChoice<kAvx512VnniFast>;
  if (features.avx512f) return kChoice<kAvx512Fast>;
  if (has_avx2(features) && exact) return kChoice<kAvx2Exact>;
  if (has_avx_vnni(features)) return kChoice<kAvxVnniFast>;
  if (has_avx2(features)) return kChoice<kAvx2Fast>;
  return exact ? kChoice<kScalarExact> : kChoice<kScalarFast>;
}

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
  if (has_amx(features)) kernels.push_back(&amx::kBf16);
  return kernels;
}

std::vector<const MicroKernel<int8_t>*> int8_kernels(const CpuFeatures& features) {
  std::vector<const MicroKernel<int8_t>*> kernels;
  if (has_avx_vnni(features)) kernels.push_back(&avx_vnni::kInt8);
  if (features.avx512vnni) kernels.push_back(&avx512_vnni::kInt8);
  if (has_amx(features)) kernels.push_back(&amx::kInt8);
  return kernels;
}

std::vector<const BlockKernel*> block_kernels(const CpuFeatures& features) {
  std::vector<const BlockKernel*> kernels;
  if (has_avx_vnni(features)) kernels.push_back(&avx_vnni::kBlocks);
  if (features.avx512vnni) kernels.push_back(&avx512_vnni::kBlocks);
  return kernels;
}

std::vector<const RowDots*> row_dots(const CpuFeatures& features) {
  std::vector<const RowDots*> dots;
  if (has_avx2(features)) dots.push_back(&avx2::kRowDots);
  return dots;
}

const KernelSet& kernel_set(const CpuFeatures& features, Profile profile) { return *choose(features, profile).set; }

}  // namespace gemm

void install_gemm(Kernels& kernels, const CpuFeatures& features, Profile profile) {
  gemm::choose(features, profile).install(kernels);
}

}  // namespace flux2
