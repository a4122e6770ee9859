#include "backend/cuda/kernels/kernels.h"

namespace flux2::cuda {

Kernels kernel_table() {
  Kernels k;
  k.fill = fill;
  k.copy = copy;
  k.unary = unary;
  k.unary_grad = unary_grad;
  k.binary = binary;
  k.scale = scale;
  k.sum = sum;
  k.linear = linear;
  k.linear_grad_input = linear_grad_input;
  k.linear_grad_weight = linear_grad_weight;
  k.product_add = product_add;
  k.layer_norm = layer_norm;
  k.layer_norm_grad = layer_norm_grad;
  k.rms_norm = rms_norm;
  k.rms_norm_grad = rms_norm_grad;
  k.group_norm = group_norm;
  k.group_norm_grad = group_norm_grad;
  k.rope = rope;
  k.attention = attention;
  k.attention_grad = attention_grad;
  k.swiglu = swiglu;
  k.swiglu_grad = swiglu_grad;
  k.embedding = embedding;
  k.embedding_grad = embedding_grad;
  k.conv2d = conv2d;
  k.conv2d_grad_input = conv2d_grad_input;
  k.conv2d_grad_weight = conv2d_grad_weight;
  k.upsample = upsample;
  k.upsample_grad = upsample_grad;
  k.conv2d_add = conv2d_add;
  k.upsample_conv2d = upsample_conv2d;
  k.modulated_norm = modulated_norm;
  k.modulated_norm_grad = modulated_norm_grad;
  k.gated_add = gated_add;
  k.gated_add_norm = gated_add_norm;
  k.linear_swiglu = linear_swiglu;
  k.quantise = quantise;
  k.quantise_swiglu = quantise_swiglu;
  k.norm_rope = norm_rope;
  k.norm_rope_grad = norm_rope_grad;
  k.torch_normal = torch_normal;
  return k;
}

}  // namespace flux2::cuda
