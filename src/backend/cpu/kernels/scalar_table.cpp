#include "backend/cpu/kernels/scalar_table.h"

namespace flux2::cpu {

void install_scalar(Kernels& kernels) {
  kernels = {
      .fill = fill,
      .copy = copy,
      .unary = unary,
      .unary_grad = unary_grad,
      .binary = binary,
      .scale = scale,
      .sum = sum,
      .linear = linear,
      .linear_grad_input = linear_grad_input,
      .linear_grad_weight = linear_grad_weight,
      .layer_norm = layer_norm,
      .layer_norm_grad = layer_norm_grad,
      .rms_norm = rms_norm,
      .rms_norm_grad = rms_norm_grad,
      .group_norm = group_norm,
      .group_norm_grad = group_norm_grad,
      .rope = rope,
      .attention = attention,
      .attention_grad = attention_grad,
      .swiglu = swiglu,
      .swiglu_grad = swiglu_grad,
      .embedding = embedding,
      .embedding_grad = embedding_grad,
      .conv2d = conv2d,
      .conv2d_grad_input = conv2d_grad_input,
      .conv2d_grad_weight = conv2d_grad_weight,
      .upsample = upsample,
      .upsample_grad = upsample_grad,
      .modulated_norm = modulated_norm,
      .gated_add = gated_add,
      .optimise = optimise,
  };
}

}  // namespace flux2::cpu
