#include "model/token_layer.h"

#include "ops/token.h"

namespace flux2 {

bool has_token_kernels(const DecoderLayer& layer, const Tensor& x) {
  const auto alike = [](const Linear& a, const Linear& b) { return a.weight.dtype() == b.weight.dtype(); };
  for (const Linear* l : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
    if (!l->is_plain()) return false;
  return x.numel() == x.dim(-1) && has_token_kernels(x) && alike(layer.q, layer.k) && alike(layer.q, layer.v) &&
         alike(layer.gate, layer.up);
}

Tensor token_layer(const DecoderLayer& layer, const Tensor& x, const TokenPass& pass) {
  const auto& [all, row] = pass.place;
  const Tensor q = Tensor::like(x, {1, 1, layer.heads, layer.head_dim}),
               k = Tensor::like(x, {1, 1, layer.kv_heads, layer.head_dim});
  const Tensor weights[] = {layer.q.weight, layer.k.weight, layer.v.weight}, places[] = {q, k, all.v.narrowed(1, row, 1)};
  row_products(x, RowNorm{layer.input_norm, layer.eps}, weights, places);
  const Tensor seen = token_attention({.q = q,
                                       .k = k,
                                       .q_norm = layer.q_norm,
                                       .k_norm = layer.k_norm,
                                       .eps = layer.eps,
                                       .cosine = pass.rope.cosine,
                                       .sine = pass.rope.sine,
                                       .pairs = pass.rope.pairs},
                                      all.k, all.v, row, pass.key_mask);
  const Tensor y = row_product_added(x, seen, layer.o.weight);
  const Tensor inner = row_swiglu(y, {layer.attention_norm, layer.eps}, layer.gate.weight, layer.up.weight);
  return row_product_added(y, inner, layer.down.weight);
}

}  // namespace flux2
