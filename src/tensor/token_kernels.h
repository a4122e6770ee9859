#pragma once

#include <cstdint>
#include <span>

#include "tensor/tensor.h"

namespace flux2 {

// Kernels for the next token of a language model, a single row. Their number per token limits its speed more than their work, so
// each of them computes what several entries of Kernels would. As there, the op that calls a kernel checks the arguments.
//
// Weights, scales, norms and masks must be at rest: not the results of work that is still in the stream. A kernel may read them
// before that work has ended.

// n · wᵀ for up to three weights [N, K] of one dtype, where n is x [1, K] or, with `norm` [K], its RMSNorm. Plain: each into its
// place [1, N]. Added: place = residual + the product of the only weight. Swiglu: place = silu(gate) · up, for the weights gate
// and up. Places have the dtype of x, or F32 if Plain.
enum class RowResult { Plain, Added, Swiglu };
struct RowProductsArgs {
  const Tensor& x;
  const Tensor* norm;
  float eps;
  std::span<const Tensor> weights;
  RowResult result;
  const Tensor* residual;
  std::span<const Tensor> places;
};

// q [1, 1, H, D] and k [1, 1, G, D] are normalised by q_norm and k_norm [D], if given, and rotated (as in NormRopeArgs). k is
// then written to `row` of keys [1, T, G, D], and y [1, 1, H, D] is the attention of q to keys and values, which already hold the
// value of the token. key_mask, I32 [1, T], may hide others. The other rows of keys and values must be at rest.
struct TokenAttentionArgs {
  const Tensor& q;
  const Tensor& k;
  const Tensor* q_norm;
  const Tensor* k_norm;
  const Tensor& cosine;
  const Tensor& sine;
  const Tensor& keys;
  const Tensor& values;
  int64_t row;
  const Tensor* key_mask;
  const Tensor& y;
  float eps;
  float scale;
  bool interleaved;
};

struct TokenKernels {
  void (*row_products)(const RowProductsArgs&) = nullptr;
  void (*token_attention)(const TokenAttentionArgs&) = nullptr;
};

// Implemented by devices that have them.
class HasTokenKernels {
 public:
  virtual const TokenKernels& token_kernels() const = 0;

 protected:
  ~HasTokenKernels() = default;
};

// Those of a device; null if it has none.
inline const TokenKernels* token_kernels_of(const Device& device) {
  const auto* has = dynamic_cast<const HasTokenKernels*>(&device);
  return has ? &has->token_kernels() : nullptr;
}

}  // namespace flux2
