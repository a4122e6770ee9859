#include <algorithm>
#include <limits>

#include "backend/cuda/cublas.h"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/parts.h"

namespace flux2::cuda {

namespace {

constexpr int64_t kScoreBytes = int64_t{256} << 20;

// Head h of batch b of a tensor [B, S, H, D], rows first … first + n − 1, as a matrix.
Matrix head(const Tensor& t, int64_t b, int64_t h, int64_t first, int64_t n) {
  const Tensor part = t.narrowed(0, b, 1).narrowed(2, h, 1).narrowed(1, first, n);
  return {part.raw(), t.dtype(), n, t.dim(3), n == 1 ? t.dim(3) : t.stride(1)};
}

// Rows of a head must be contiguous and lie apart.
Tensor heads_operand(const Tensor& t) {
  const bool fits = (t.dim(3) == 1 || t.stride(3) == 1) && (t.dim(1) == 1 || t.stride(1) >= t.dim(3));
  return fits ? t : t.cloned();
}

// Scores, softmax and the weighted sum as two products and a kernel between them, some queries of one head at a time: any
// head width, F32 throughout when the activations are F32. For the VAE's one wide head and for exact runs.
void attention_by_products(const AttentionArgs& args) {
  const Tensor q = heads_operand(args.q), k = heads_operand(args.k), v = heads_operand(args.v);
  CudaStream& stream = stream_for(args.y);
  const int64_t queries = q.dim(1), heads = q.dim(2), keys = k.dim(1), shared_by = heads / k.dim(2);
  const int64_t length = ceil_div(keys, 8) * 8;
  const int64_t rows = std::clamp<int64_t>(kScoreBytes / (length * 4), 1, queries);
  const Tensor scores = Tensor::like(q, DType::F32, {rows, length});
  const Tensor probabilities = q.dtype() == DType::F32 ? scores : Tensor::like(q, {rows, length});
  Tensor mask;
  if (args.key_mask) mask = args.key_mask->contiguous();

  for (int64_t b = 0; b < q.dim(0); ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t first = 0; first < queries; first += rows) {
        const int64_t n = std::min(rows, queries - first);
        const Tensor part = scores.narrowed(0, 0, n);
        const Matrix score_matrix{scores.raw(), DType::F32, n, keys, length};
        const Matrix probability_matrix{probabilities.raw(), q.dtype(), n, keys, length};
        stream.cublas().multiply({.a = head(q, b, h, first, n),
                                  .b = head(k, b, h / shared_by, 0, keys),
                                  .y = score_matrix,
                                  .transpose_b = true,
                                  .factor = args.scale});
        stream.enqueued("attention");
        masked_softmax({part, probabilities, keys, first + keys - queries, args.causal,
                        args.key_mask ? mask.data<int32_t>() + b * keys : nullptr,
                        args.log_sum ? args.log_sum->data<float>() + (b * heads + h) * queries + first : nullptr});
        stream.cublas().multiply(
            {.a = probability_matrix, .b = head(v, b, h / shared_by, 0, keys), .y = head(args.y, b, h, first, n)});
        stream.enqueued("attention");
      }
}

// The widths for which cuDNN has its fast kernels.
bool library_attention_fits(const AttentionArgs& args) {
  return args.q.dtype() == DType::BF16 && !args.causal && !args.key_mask && (args.q.dim(3) == 64 || args.q.dim(3) == 128);
}

}  // namespace

void attention(const AttentionArgs& args) {
  if (args.q.dtype() != DType::F32 && args.q.dtype() != DType::BF16) refuse_dtype("attention", args.q.dtype());
  if (args.y.numel() == 0) return;
  if (args.k.dim(1) == 0) {  // nothing to look at
    if (args.log_sum) args.log_sum->fill(-std::numeric_limits<double>::infinity());
    return args.y.fill(0.0);
  }
  if (one_query_attention_fits(args)) return one_query_attention(args);
  if (args.eight_bits && eight_bit_attention_fits(args)) return eight_bit_attention(args);
  if (library_attention_fits(args) && stream_for(args.y).cudnn().attention(args)) stream_for(args.y).enqueued("attention");
  else if (flash_attention_fits(args)) flash_attention(args);
  else attention_by_products(args);
}

}  // namespace flux2::cuda
