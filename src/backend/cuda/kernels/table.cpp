#include "backend/cuda/capture_gate.h"
#include "backend/cuda/kernels/kernels.h"

namespace flux2::cuda {

namespace {

// Launching may load a kernel, make a plan of a library or time one.
template <auto kernel, class Args>
void gated(const Args& args) {
  const OutsideCaptures here;
  kernel(args);
}

}  // namespace

Kernels kernel_table() {
  Kernels k;
  k.fill = gated<fill>;
  k.copy = gated<copy>;
  k.unary = gated<unary>;
  k.unary_grad = gated<unary_grad>;
  k.binary = gated<binary>;
  k.scale = gated<scale>;
  k.sum = gated<sum>;
  k.linear = gated<linear>;
  k.linear_grad_input = gated<linear_grad_input>;
  k.linear_grad_weight = gated<linear_grad_weight>;
  k.product_add = gated<product_add>;
  k.adapter_grad = gated<adapter_grad>;
  k.layer_norm = gated<layer_norm>;
  k.layer_norm_grad = gated<layer_norm_grad>;
  k.rms_norm = gated<rms_norm>;
  k.rms_norm_grad = gated<rms_norm_grad>;
  k.group_norm = gated<group_norm>;
  k.group_norm_grad = gated<group_norm_grad>;
  k.rope = gated<rope>;
  k.attention = gated<attention>;
  k.attention_grad = gated<attention_grad>;
  k.swiglu = gated<swiglu>;
  k.swiglu_grad = gated<swiglu_grad>;
  k.embedding = gated<embedding>;
  k.embedding_grad = gated<embedding_grad>;
  k.conv2d = gated<conv2d>;
  k.conv2d_grad_input = gated<conv2d_grad_input>;
  k.conv2d_grad_weight = gated<conv2d_grad_weight>;
  k.upsample = gated<upsample>;
  k.upsample_grad = gated<upsample_grad>;
  k.conv2d_add = gated<conv2d_add>;
  k.upsample_conv2d = gated<upsample_conv2d>;
  k.modulated_norm = gated<modulated_norm>;
  k.modulated_norm_grad = gated<modulated_norm_grad>;
  k.modulation_grad = gated<modulation_grad>;
  k.gated_add = gated<gated_add>;
  k.gated_add_norm = gated<gated_add_norm>;
  k.linear_swiglu = gated<linear_swiglu>;
  k.quantise = gated<quantise>;
  k.quantise_swiglu = gated<quantise_swiglu>;
  k.norm_rope = gated<norm_rope>;
  k.norm_rope_grad = gated<norm_rope_grad>;
  k.torch_normal = gated<torch_normal>;
  k.optimise = gated<optimise>;
  return k;
}

TokenKernels token_kernel_table() { return {.row_products = gated<row_products>, .token_attention = gated<token_attention>}; }

}  // namespace flux2::cuda
