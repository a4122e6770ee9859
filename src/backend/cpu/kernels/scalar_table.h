#pragma once

#include "tensor/kernels.h"

namespace flux2::cpu {

// Every kernel, in plain C++ over RowMath: correct for all dtypes, strides and machines.
void install_scalar(Kernels& kernels);

void fill(const FillArgs&);
void copy(const CopyArgs&);
void unary(const UnaryArgs&);
void unary_grad(const UnaryGradArgs&);
void binary(const BinaryArgs&);
void scale(const ScaleArgs&);
void sum(const SumArgs&);
void linear(const LinearArgs&);
void linear_grad_input(const LinearGradInputArgs&);
void linear_grad_weight(const LinearGradWeightArgs&);
void layer_norm(const LayerNormArgs&);
void layer_norm_grad(const LayerNormGradArgs&);
void rms_norm(const RmsNormArgs&);
void rms_norm_grad(const RmsNormGradArgs&);
void group_norm(const GroupNormArgs&);
void group_norm_grad(const GroupNormGradArgs&);
void rope(const RopeArgs&);
void attention(const AttentionArgs&);
void attention_grad(const AttentionGradArgs&);
void swiglu(const SwigluArgs&);
void swiglu_grad(const SwigluGradArgs&);
void embedding(const EmbeddingArgs&);
void embedding_grad(const EmbeddingGradArgs&);
void conv2d(const Conv2dArgs&);
void conv2d_grad_input(const Conv2dGradInputArgs&);
void conv2d_grad_weight(const Conv2dGradWeightArgs&);
void upsample(const UpsampleArgs&);
void upsample_grad(const UpsampleGradArgs&);
void modulated_norm(const ModulatedNormArgs&);
void gated_add(const GatedAddArgs&);
void optimise(const OptimiseArgs&);

}  // namespace flux2::cpu
