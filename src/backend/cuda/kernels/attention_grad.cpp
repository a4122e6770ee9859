#include <algorithm>

#include "backend/cuda/cublas.h"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/parts.h"

namespace flux2::cuda {

namespace {

constexpr int64_t kScoreBytes = int64_t{128} << 20;  // of scores, and as much of their gradient

// Head h of the items b … b + items − 1 of a tensor [B, S, H, D], rows first … first + n − 1: [items, n, D].
Tensor head(const Tensor& t, int64_t b, int64_t items, int64_t h, int64_t first, int64_t n) {
  return t.narrowed(0, b, items).narrowed(2, h, 1).narrowed(1, first, n).reshaped({items, n, t.dim(3)});
}
// The matrices of [items, M, N].
Matrix matrix(const Tensor& t) {
  return {t.raw(), t.dtype(), t.dim(1), t.dim(2), t.dim(1) == 1 ? t.dim(2) : t.stride(1), t.dim(0) == 1 ? 0 : t.stride(0)};
}

// Rows of a head must be contiguous and lie apart.
Tensor heads_operand(const Tensor& t) {
  const bool fits = (t.dim(3) == 1 || t.stride(3) == 1) && (t.dim(1) == 1 || t.stride(1) >= t.dim(3));
  return fits ? t : t.cloned();
}

// Five products and a kernel between them for one head: any head width and mask, F32 throughout when the activations are F32.
// Where the scores of a head are small, many items of the batch are taken at once, otherwise some queries of one item. Sums over
// queries and over the heads that share keys go into F32, in order.
void attention_grad_by_products(const AttentionGradArgs& args) {
  const Tensor q = heads_operand(args.q), k = heads_operand(args.k), v = heads_operand(args.v), y = heads_operand(args.y),
               dy = heads_operand(args.dy), log_sum = args.log_sum.contiguous();
  CudaStream& stream = stream_for(args.dq);
  const int64_t batch = q.dim(0), queries = q.dim(1), heads = q.dim(2), keys = k.dim(1), shared_by = heads / k.dim(2);
  const int64_t length = ceil_div(keys, 8) * 8, fitting = kScoreBytes / (length * 4);
  const int64_t rows = std::clamp<int64_t>(fitting, 1, queries), items = std::clamp<int64_t>(fitting / queries, 1, batch);
  const Tensor scores = Tensor::like(q, DType::F32, {items * rows * length}), dprobabilities = Tensor::like(scores);
  const bool single = q.dtype() == DType::F32;
  const Tensor probabilities = single ? scores : Tensor::like(q, {items * rows * length});
  const Tensor dscores = single ? dprobabilities : Tensor::like(q, {items * rows * length});
  const Tensor dk = Tensor::like(k, DType::F32, k.shape()), dv = Tensor::like(v, DType::F32, v.shape());
  Tensor mask;
  if (args.key_mask) mask = args.key_mask->contiguous();

  for (int64_t b = 0; b < batch; b += items)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t first = 0; first < queries; first += rows) {
        const int64_t m = std::min(items, batch - b), n = std::min(rows, queries - first), g = h / shared_by;
        const auto multiply = [&](Cublas::Product product) {
          product.batches = m;
          stream.cublas().multiply(product);
          stream.enqueued("attention_grad");
        };
        const auto used = [&](const Tensor& t) { return t.narrowed(0, 0, m * n * length).reshaped({m, n, length}); };
        const auto part = [&](const Tensor& t) { return matrix(used(t).narrowed(2, 0, keys)); };
        const Tensor query = head(q, b, m, h, first, n), dout = head(dy, b, m, h, first, n);
        const Tensor key = head(k, b, m, g, 0, keys), value = head(v, b, m, g, 0, keys);
        multiply({.a = matrix(query), .b = matrix(key), .y = part(scores), .transpose_b = true, .factor = args.scale});
        multiply({.a = matrix(dout), .b = matrix(value), .y = part(dprobabilities), .transpose_b = true});
        softmax_grad({used(scores), used(dprobabilities), head(y, b, m, h, first, n), dout, used(probabilities), used(dscores),
                      keys, first + keys - queries, args.causal, args.key_mask ? mask.data<int32_t>() + b * keys : nullptr,
                      log_sum.data<float>() + (b * heads + h) * queries + first, heads * queries, args.scale});
        const bool add = first > 0 || h % shared_by != 0;
        const Matrix p = part(probabilities), ds = part(dscores);
        multiply({.a = p, .b = matrix(dout), .y = matrix(head(dv, b, m, g, 0, keys)), .transpose_a = true, .add = add});
        multiply({.a = ds, .b = matrix(query), .y = matrix(head(dk, b, m, g, 0, keys)), .transpose_a = true, .add = add});
        multiply({.a = ds, .b = matrix(key), .y = matrix(head(args.dq, b, m, h, first, n))});
      }
  args.dk.copy_from(dk);
  args.dv.copy_from(dv);
}

}  // namespace

void attention_grad(const AttentionGradArgs& args) {
  if (args.q.dtype() != DType::F32 && args.q.dtype() != DType::BF16) refuse_dtype("attention_grad", args.q.dtype());
  if (args.q.numel() == 0 || args.k.numel() == 0) {
    for (const Tensor* t : {&args.dq, &args.dk, &args.dv})
      if (t->numel() > 0) t->fill(0.0);
    return;
  }
  CudaStream& stream = stream_for(args.dq);
  if (stream.cudnn().attention_grad(args)) {
    const auto queries = static_cast<double>(args.q.numel()), keys = static_cast<double>(args.k.dim(1));
    stream.enqueued("attention_grad", {.flop = 10 * queries * keys});
  } else {
    attention_grad_by_products(args);
  }
}

}  // namespace flux2::cuda
