#pragma once

#include <string>

#include "tensor/kernels.h"
#include "tensor/token_kernels.h"

// The kernels of the CUDA table; tensor/kernels.h says what each computes. All of them enqueue and return.
// Activations are F32 or BF16; another dtype is an Error that names the op.
namespace flux2::cuda {

Kernels kernel_table();
TokenKernels token_kernel_table();

// Why this build has no code for the current GPU; empty when it has.
std::string missing_image();

void fill(const FillArgs& args);
void copy(const CopyArgs& args);
// x Q8_0, Q4_0 or of one byte with its scales; y F32 or BF16; both contiguous.
void dequantise(const Tensor& x, const Tensor& y);
void unary(const UnaryArgs& args);
void unary_grad(const UnaryGradArgs& args);
void binary(const BinaryArgs& args);
void scale(const ScaleArgs& args);
void sum(const SumArgs& args);
void linear(const LinearArgs& args);
void linear_grad_input(const LinearGradInputArgs& args);
void linear_grad_weight(const LinearGradWeightArgs& args);
void product_add(const ProductAddArgs& args);
void adapter_grad(const AdapterGradArgs& args);
void layer_norm(const LayerNormArgs& args);
void layer_norm_grad(const LayerNormGradArgs& args);
void rms_norm(const RmsNormArgs& args);
void rms_norm_grad(const RmsNormGradArgs& args);
void group_norm(const GroupNormArgs& args);
void group_norm_grad(const GroupNormGradArgs& args);
void rope(const RopeArgs& args);
void attention(const AttentionArgs& args);
void attention_grad(const AttentionGradArgs& args);
void swiglu(const SwigluArgs& args);
void swiglu_grad(const SwigluGradArgs& args);
void embedding(const EmbeddingArgs& args);
void embedding_grad(const EmbeddingGradArgs& args);
void conv2d(const Conv2dArgs& args);
void conv2d_grad_input(const Conv2dGradInputArgs& args);
void conv2d_grad_weight(const Conv2dGradWeightArgs& args);
void upsample(const UpsampleArgs& args);
void upsample_grad(const UpsampleGradArgs& args);
void conv2d_add(const Conv2dAddArgs& args);
void upsample_conv2d(const UpsampleConv2dArgs& args);
void modulated_norm(const ModulatedNormArgs& args);
void modulated_norm_grad(const ModulatedNormGradArgs& args);
void modulation_grad(const ModulationGradArgs& args);
void gated_add(const GatedAddArgs& args);
void gated_add_norm(const GatedAddNormArgs& args);
void linear_swiglu(const LinearSwigluArgs& args);
void quantise(const QuantiseArgs& args);
void quantise_swiglu(const QuantiseSwigluArgs& args);
void norm_rope(const NormRopeArgs& args);
void norm_rope_grad(const NormRopeGradArgs& args);
void row_products(const RowProductsArgs& args);
void token_attention(const TokenAttentionArgs& args);
void torch_normal(const TorchNormalArgs& args);
void optimise(const OptimiseArgs& args);

}  // namespace flux2::cuda
