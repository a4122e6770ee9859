#include "ops/token.h"

#include <cmath>
#include <vector>

#include "autograd/grad.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/attention.h"
#include "ops/empty.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "tensor/token_kernels.h"

namespace flux2 {

bool has_token_kernels(const Tensor& x) { return x.dtype() == DType::BF16 && !wants_grad(x) && token_kernels_of(x.device()); }

namespace {

void check_row(const Tensor& x, const std::optional<RowNorm>& norm, std::span<const Tensor> weights) {
  require(x.rank() >= 1 && x.numel() == x.dim(-1), "row products: {} is not one row", x.shape());
  require(!norm || norm->weight.shape() == Shape{x.dim(-1)}, "row products: norm {} for input {}",
          norm ? norm->weight.shape() : Shape{}, x.shape());
  for (const Tensor& w : weights)
    require(w.rank() == 2 && w.dim(1) == x.dim(-1) && w.dtype() == weights[0].dtype(),
            "row products: {} weights {} for input {} beside {}", name_of(w.dtype()), w.shape(), x.shape(),
            name_of(weights[0].dtype()));
}

bool fused(const Tensor& x, std::span<const Tensor> weights) {
  for (const Tensor& w : weights)
    if (wants_grad(w)) return false;
  return has_token_kernels(x);
}

Tensor as_row(const Tensor& t) { return t.reshaped({1, t.numel()}); }

}  // namespace

void row_products(const Tensor& x, const std::optional<RowNorm>& norm, std::span<const Tensor> weights,
                  std::span<const Tensor> places) {
  require(!weights.empty() && weights.size() <= 3 && weights.size() == places.size(), "row products: {} weights for {} places",
          weights.size(), places.size());
  check_row(x, norm, weights);
  std::vector<Tensor> rows, used;  // places and their weights
  for (size_t i = 0; i < places.size(); ++i) {
    require(places[i].numel() == weights[i].dim(0), "row products: place {} for a weight of shape {}", places[i].shape(),
            weights[i].shape());
    require_terms("row products", x.dim(-1), places[i].shape());
    if (places[i].numel() == 0) continue;
    rows.push_back(as_row(places[i]));
    used.push_back(weights[i]);
  }
  if (rows.empty()) return;
  const Tensor row = as_row(x);
  if (fused(x, used)) {
    token_kernels_of(x.device())
        ->row_products({row, norm ? &norm->weight : nullptr, norm ? norm->eps : 0.0f, used, RowResult::Plain, nullptr, rows});
    return;
  }
  const Tensor n = norm ? rms_norm(row, norm->weight, norm->eps) : row;
  for (size_t i = 0; i < rows.size(); ++i) rows[i].copy_from(linear(n, used[i]));
}

Tensor row_product_added(const Tensor& residual, const Tensor& x, const Tensor& w) {
  check_row(x, {}, {&w, 1});
  require(residual.numel() == w.dim(0), "row products: residual {} for a weight of shape {}", residual.shape(), w.shape());
  if (residual.numel() == 0 || !fused(x, {&w, 1}) || residual.dtype() != x.dtype() || wants_grad(residual))
    return residual + linear(as_row(x), w).reshaped(residual.shape());
  Tensor y = Tensor::like(residual);
  require_terms("row products", x.dim(-1), y.shape());
  const Tensor added = as_row(residual.contiguous()), place = as_row(y);
  token_kernels_of(x.device())->row_products({as_row(x), nullptr, 0.0f, {&w, 1}, RowResult::Added, &added, {&place, 1}});
  return y;
}

Tensor row_swiglu(const Tensor& x, const RowNorm& norm, const Tensor& gate, const Tensor& up) {
  const Tensor weights[] = {gate, up};
  check_row(x, norm, weights);
  require(gate.shape() == up.shape(), "row products: gate {} and up {}", gate.shape(), up.shape());
  if (gate.dim(0) == 0 || !fused(x, weights)) {
    const Tensor n = rms_norm(x, norm.weight, norm.eps);
    return swiglu(linear(n, gate), linear(n, up));
  }
  Tensor y = Tensor::like(x, x.shape().with(-1, gate.dim(0)));
  require_terms("row products", x.dim(-1), y.shape());
  const Tensor place = as_row(y);
  token_kernels_of(x.device())
      ->row_products({as_row(x), &norm.weight, norm.eps, weights, RowResult::Swiglu, nullptr, {&place, 1}});
  return y;
}

Tensor token_attention(const TokenHeads& heads, const Tensor& keys, const Tensor& values, int64_t row, const Tensor& key_mask) {
  const Tensor &q = heads.q, &k = heads.k;
  require(
      q.rank() == 4 && q.dim(0) == 1 && q.dim(1) == 1 && k.shape() == keys.shape().with(1, 1) && row >= 0 && row < keys.dim(1),
      "token attention: query {}, key {} for row {} of keys {}", q.shape(), k.shape(), row, keys.shape());
  const int64_t width = q.dim(3);
  for (const Tensor* norm : {&heads.q_norm, &heads.k_norm})
    require(!norm->defined() || norm->shape() == Shape{width}, "token attention: norm {} for query {}",
            norm->defined() ? norm->shape() : Shape{}, q.shape());
  require(width % 2 == 0 && heads.cosine.shape() == Shape{1, width / 2} && heads.sine.shape() == heads.cosine.shape(),
          "token attention: table {} for query {}", heads.cosine.shape(), q.shape());
  const auto turned = [&](const Tensor& x, const Tensor& norm) {
    return norm.defined() ? norm_rope({{x, norm}}, heads.cosine, heads.sine, heads.pairs, heads.eps)
                          : rope(x, heads.cosine, heads.sine, heads.pairs);
  };
  if (!has_token_kernels(q) || q.numel() == 0) {
    const Tensor query = turned(q, heads.q_norm);
    keys.narrowed(1, row, 1).copy_from(turned(k, heads.k_norm));
    return attention(query, keys, values, {.causal = false, .key_mask = key_mask});
  }
  require(values.shape() == keys.shape() && keys.dim(0) == 1 && keys.dim(3) == width && keys.dim(2) > 0 &&
              q.dim(2) % keys.dim(2) == 0,
          "token attention: query {}, keys {}, values {}", q.shape(), keys.shape(), values.shape());
  require(!key_mask.defined() || key_mask.shape() == Shape{1, keys.dim(1)}, "token attention: key mask {} for keys {}",
          key_mask.defined() ? key_mask.shape() : Shape{}, keys.shape());
  const Tensor y = Tensor::like(q);
  token_kernels_of(q.device())
      ->token_attention({q, k, heads.q_norm.defined() ? &heads.q_norm : nullptr, heads.k_norm.defined() ? &heads.k_norm : nullptr,
                         heads.cosine, heads.sine, keys, values, row, key_mask.defined() ? &key_mask : nullptr, y, heads.eps,
                         1.0f / std::sqrt(static_cast<float>(width)), heads.pairs == RopePairs::Interleaved});
  return y.reshaped({1, 1, q.dim(2) * width});
}

}  // namespace flux2
