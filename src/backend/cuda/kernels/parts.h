#pragma once

#include "tensor/kernels.h"
#include "tensor/tensor.h"
#include "tensor/token_kernels.h"

// Kernels that are steps of others rather than entries of the table.
namespace flux2::cuda {

// Rows first … first + columns.dim(0) − 1 of the matrix [B·H'·W', kh·kw·C] whose product with the weights is the convolution.
// Columns past kh·kw·C are zero.
struct Im2colArgs {
  const Tensor& x;
  const Tensor& columns;  // columns contiguous
  int64_t first, kernel_rows, kernel_columns, out_rows, out_columns;
  ConvShape conv;
};
void im2col(const Im2colArgs& args);

// w [O, kh, kw, C] → turned [C, kh, kw, O] with the taps in reverse, both contiguous and of the same dtype.
void turn_taps(const Tensor& w, const Tensor& turned);

// w [O, 3, 3, C] → phases [4, O, 2, 2, C]: the taps with which the four pixels of a ×2 nearest upsample see the small image,
// phase 2·(row % 2) + column % 2.
void sum_taps(const Tensor& w, const Tensor& phases);
// phases [4, B, H, W, C] → y [B, 2H, 2W, C], all contiguous: pixel (i, j) from the phase 2·(i % 2) + j % 2 at (i / 2, j / 2).
void interleave(const Tensor& phases, const Tensor& y);

// probabilities = softmax(scores) over the keys that query `first_query` + row may see; zero where it sees none. scores F32
// [M, ≥ keys], rows 16-byte aligned and a multiple of four long; probabilities of the same row stride, F32 (then the scores'
// own memory is allowed) or BF16.
struct SoftmaxArgs {
  const Tensor& scores;
  const Tensor& probabilities;
  int64_t keys, first_query;
  bool causal;
  const int32_t* key_mask;  // [keys] or null
  float* log_sum;           // [M] or null
};
void masked_softmax(const SoftmaxArgs& args);

// The product of one row, x [1, K] BF16, F32 or of w's own eight bits, with weights of any storage dtype: it reads the weights
// once, as they are stored, and rounds nothing but the result.
bool one_row_product_fits(const LinearArgs& args);
void one_row_product(const LinearArgs& args);

// Whether row_products and token_attention have a kernel for these; else they call other kernels.
bool row_products_fit(const RowProductsArgs& args);
bool token_attention_fits(const TokenAttentionArgs& args);

// The product of e4m3 with e4m3 or int8 with int8 into BF16: for weights of such a dtype that the GPU multiplies
// (Device::multiplies), and an x that is BF16 or quantised to that dtype already.
bool eight_bit_product_fits(const LinearArgs& args);
void eight_bit_product(const LinearArgs& args);
void eight_bit_product_add(const LinearArgs& args);  // y += the product
// The same on every GPU that multiplies this dtype: the library computes plain sums and scale_sums() applies the scales of the
// rows. It computes some rows at a time, so that the sums need little memory.
void eight_bit_product_by_sums(const LinearArgs& args, bool add = false);

// y[M, N] BF16 = sums[M, N] · x_scales[M] · w_scales[N] (+ y), for sums that are I32 or F32 and contiguous. Rows of y begin at
// multiples of 16 bytes; N is a multiple of 8.
struct ScaleSumsArgs {
  const Tensor& sums;
  const Tensor& x_scales;
  const Tensor& w_scales;
  const Tensor& y;
  bool add = false;
};
void scale_sums(const ScaleSumsArgs& args);

// The gradient dX = dY · W of a product with a weight W [N, K] in e4m3, itself in e4m3: dY [M, N] BF16 is quantised for it, and W
// transposed. Where the GPU's product takes scales of rows.
bool eight_bit_gradient_fits(const LinearGradInputArgs& args);
void eight_bit_gradient(const LinearGradInputArgs& args);
void eight_bit_gradient_add(const LinearGradInputArgs& args);  // dX += the product

// y [M, N] e4m3, with a scale for each row, of dy · factors. dy BF16, factors F32 [N]; rows begin at multiples of 16 bytes, N is
// a multiple of 8.
struct QuantiseGradientArgs {
  const Tensor& dy;
  const Tensor& factors;
  const Tensor& y;
};
void quantise_gradient(const QuantiseGradientArgs& args);

// y [N, M] = xᵀ for elements of one byte: contiguous, 16-byte aligned, M and N multiples of 16.
void transpose_bytes(const Tensor& x, const Tensor& y);

// y [M, N] = silu(gate) · up, where [gate up] = x[M, K] · w[2N, K]ᵀ is never stored: one kernel for BF16 on sm_90a.
struct SwigluProductArgs {
  const Tensor& x;
  const Tensor& w;
  const Tensor& y;
};
bool swiglu_product_fits(const SwigluProductArgs& args);  // this GPU and these tensors
bool swiglu_product_pays(const SwigluProductArgs& args);  // the tiles fill the GPU to the end
void swiglu_product(const SwigluProductArgs& args);

// Both gradients of an adapter with one reading of dy: one kernel for BF16 and ranks 16, 32 and 64 on sm_90a.
bool adapter_gradient_fits(const AdapterGradArgs& args);  // this GPU and these tensors
bool adapter_gradient_pays(const AdapterGradArgs& args);  // against a product of the library for each
void adapter_gradient(const AdapterGradArgs& args);

// The probabilities again, from the scores and log Σ exp, and the gradient of the unscaled scores q · k, for one head of N items
// of a batch. scores and dprobabilities F32 [N, M, ≥ keys], contiguous, which probabilities and dscores are too; those have the
// dtype of out and dout [N, M, D], and may be the same memory as scores and dprobabilities when it is F32.
struct SoftmaxGradArgs {
  const Tensor& scores;
  const Tensor& dprobabilities;
  const Tensor& out;
  const Tensor& dout;
  const Tensor& probabilities;
  const Tensor& dscores;
  int64_t keys, first_query;
  bool causal;
  const int32_t* key_mask;  // [N, keys] or null
  const float* log_sum;     // [N, M]; items are log_sum_stride apart
  int64_t log_sum_stride;
  float scale;
};
void softmax_grad(const SoftmaxGradArgs& args);

// Attention of one query for each item of the batch to at most 8192 keys, all in F32, for heads of at most 256 whose width is a
// multiple of 8.
bool one_query_attention_fits(const AttentionArgs& args);
void one_query_attention(const AttentionArgs& args);

// Attention in one kernel on the tensor cores, for BF16 heads of at most 128 whose width is a multiple of 8.
bool flash_attention_fits(const AttentionArgs& args);
void flash_attention(const AttentionArgs& args);

// Attention with queries, keys, values and probabilities in e4m3, for BF16 heads of 128 on sm_90a, without masks and log_sum.
bool has_eight_bit_attention();                            // in this build
bool eight_bit_attention_fits(const AttentionArgs& args);  // this GPU and these tensors
void eight_bit_attention(const AttentionArgs& args);

}  // namespace flux2::cuda
