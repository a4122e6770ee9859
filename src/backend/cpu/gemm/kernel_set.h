#pragma once

#include "backend/cpu/gemm/micro_kernel.h"
#include "backend/cpu/gemm/row_dots.h"
#include "tensor/kernels.h"

namespace flux2::gemm {

// The micro-kernels of a device, chosen once when it is opened. Profile::Exact has only the first.
struct KernelSet {
  const MicroKernel<float>* in_f32;
  const MicroKernel<bf16>* in_bf16 = nullptr;    // null: such products are f32
  const MicroKernel<int8_t>* in_int8 = nullptr;  // null: int8 weights are converted like all others
  const BlockKernel* in_blocks = nullptr;        // null: so are weights of block types
  const RowDots* row_dots = nullptr;             // null: products with few rows are f32
  bool direct = false;                           // products with few rows skip packing; their sums have a different order
};

// Each of these computes what kernels.h says of the field it fills, leaving F64 and what else no micro-kernel reads
// to the scalar kernels.
void linear(const LinearArgs& args, const KernelSet& set);
void linear_grad_input(const LinearGradInputArgs& args, const KernelSet& set);
void linear_grad_weight(const LinearGradWeightArgs& args, const KernelSet& set);
void conv2d(const Conv2dArgs& args, const KernelSet& set);
void conv2d_add(const Conv2dAddArgs& args, const KernelSet& set);
void upsample_conv2d(const UpsampleConv2dArgs& args, const KernelSet& set);
void conv2d_grad_input(const Conv2dGradInputArgs& args, const KernelSet& set);
void conv2d_grad_weight(const Conv2dGradWeightArgs& args, const KernelSet& set);
void attention(const AttentionArgs& args, const KernelSet& set);
void attention_grad(const AttentionGradArgs& args, const KernelSet& set);

// Table entries are plain functions, so the set they use is part of their type.
template <const KernelSet& set>
void install(Kernels& kernels) {
  kernels.linear = [](const LinearArgs& args) { linear(args, set); };
  kernels.linear_grad_input = [](const LinearGradInputArgs& args) { linear_grad_input(args, set); };
  kernels.linear_grad_weight = [](const LinearGradWeightArgs& args) { linear_grad_weight(args, set); };
  kernels.conv2d = [](const Conv2dArgs& args) { conv2d(args, set); };
  kernels.conv2d_add = [](const Conv2dAddArgs& args) { conv2d_add(args, set); };
  kernels.upsample_conv2d = [](const UpsampleConv2dArgs& args) { upsample_conv2d(args, set); };
  kernels.conv2d_grad_input = [](const Conv2dGradInputArgs& args) { conv2d_grad_input(args, set); };
  kernels.conv2d_grad_weight = [](const Conv2dGradWeightArgs& args) { conv2d_grad_weight(args, set); };
  kernels.attention = [](const AttentionArgs& args) { attention(args, set); };
  kernels.attention_grad = [](const AttentionGradArgs& args) { attention_grad(args, set); };
}

// A set with what installs it.
struct Choice {
  const KernelSet* set;
  void (*install)(Kernels& kernels);
};
template <const KernelSet& set>
constexpr Choice kChoice = {&set, install<set>};

}  // namespace flux2::gemm
