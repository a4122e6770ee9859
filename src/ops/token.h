#pragma once

#include <optional>
#include <span>

#include "ops/rope.h"
#include "tensor/tensor.h"

// What a language model computes for its next token, a single row, with few kernels: their number limits the speed. All of them
// have no gradient. Weights must be at rest, that is, not the results of work that is still in the stream.
namespace flux2 {

// Whether the device has kernels for a token like x. Otherwise the ops below run the separate ops.
bool has_token_kernels(const Tensor& x);

struct RowNorm {
  Tensor weight;  // [K]
  float eps = 1e-6f;
};

// linear(rms_norm(x), w) for up to three weights [N, K] of one dtype, each into its place [.., N], which has the dtype of x or
// F32. Without a norm: linear(x, w). x [.., K] is one row.
void row_products(const Tensor& x, const std::optional<RowNorm>& norm, std::span<const Tensor> weights,
                  std::span<const Tensor> places);
// residual + linear(x, w), of the residual's shape.
Tensor row_product_added(const Tensor& residual, const Tensor& x, const Tensor& w);
// swiglu(linear(n, gate), linear(n, up)) for n = rms_norm(x).
Tensor row_swiglu(const Tensor& x, const RowNorm& norm, const Tensor& gate, const Tensor& up);

// The query q [1, 1, H, D] and the key k [1, 1, G, D] of the new token as products gave them, and how they are finished.
struct TokenHeads {
  Tensor q, k;
  Tensor q_norm, k_norm;  // [D]; undefined: no norm
  float eps = 1e-6f;
  Tensor cosine, sine;  // F32 [1, D/2]
  RopePairs pairs = RopePairs::Halves;
};
// Normalises and rotates query and key, writes the key to `row` of keys [1, T, G, D], and attends to all keys that key_mask
// (I32 [1, T], or undefined) shows. values already hold the value of the token. The result is [1, 1, H · D].
Tensor token_attention(const TokenHeads& heads, const Tensor& keys, const Tensor& values, int64_t row, const Tensor& key_mask);

}  // namespace flux2
