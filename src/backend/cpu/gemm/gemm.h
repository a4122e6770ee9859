#pragma once

#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/gemm/kernel_set.h"

namespace flux2 {

// Replaces the matrix products of a table (linear, convolution, attention and their gradients) with
// blocked, packed and multi-threaded ones for the instruction sets of this machine.
//
// Exact: f32 products, each summed over K in an order that depends on K alone. Fast: operands are rounded to bf16 where the
// processor multiplies bf16 and the weight is stored in 16 bits or less; where it multiplies int8, the integers of I8, Q8_0 and
// Q4_0 weights are used as they are, other block types are rounded to int8 (panels.h), and activations are rounded to int8 with
// one scale per row. Products with few rows use the weights of more types as they are (row_dots.h). Sums are f32 or int32.
void install_gemm(Kernels& kernels, const CpuFeatures& features, Profile profile);

namespace gemm {

// What install_gemm() chooses for these features.
const KernelSet& kernel_set(const CpuFeatures& features, Profile profile);

// The micro-kernels and row products these features can run, slowest first.
std::vector<const MicroKernel<float>*> f32_kernels(const CpuFeatures& features);
std::vector<const MicroKernel<bf16>*> bf16_kernels(const CpuFeatures& features);
std::vector<const MicroKernel<int8_t>*> int8_kernels(const CpuFeatures& features);
std::vector<const BlockKernel*> block_kernels(const CpuFeatures& features);
std::vector<const RowDots*> row_dots(const CpuFeatures& features);

}  // namespace gemm

}  // namespace flux2
