#include "backend/cpu/gemm/one_query.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/gemm/compiler.h"
#include "backend/cpu/gemm/operands.h"

namespace flux2::gemm {

namespace {

constexpr int kQueryLanes = 16;  // independent sums, so that the loop becomes vector code

// scores[j] = scale · q · k_j, and returns the largest.
FLUX2_CLONES float score_keys(const float* q, const float* k, int64_t stride, int64_t keys, int64_t width, float scale,
                              float* scores) {
  float most = -INFINITY;
  for (int64_t j = 0; j < keys; ++j, k += stride) {
    float sum[kQueryLanes] = {};
    for (int64_t i = 0; i < width; i += kQueryLanes)
      for (int l = 0; l < kQueryLanes; ++l) sum[l] += q[i + l] * k[i + l];
    for (int half = kQueryLanes / 2; half > 0; half /= 2)
      for (int l = 0; l < half; ++l) sum[l] += sum[l + half];
    scores[j] = scale * sum[0];
    most = std::max(most, scores[j]);
  }
  return most;
}

// out = Σ weights[j] · v_j, as many columns at a time as stay in registers.
FLUX2_CLONES void mix_values(const float* weights, const float* v, int64_t stride, int64_t keys, int64_t width, float* out) {
  constexpr int kColumns = 2 * kQueryLanes;
  int64_t i = 0;
  for (; i + kColumns <= width; i += kColumns) {
    float sum[kColumns] = {};
    const float* from = v + i;
    for (int64_t j = 0; j < keys; ++j, from += stride)
      for (int l = 0; l < kColumns; ++l) sum[l] += weights[j] * from[l];
    std::copy_n(sum, kColumns, out + i);
  }
  for (; i < width; ++i) {
    float sum = 0;
    for (int64_t j = 0; j < keys; ++j) sum += weights[j] * v[j * stride + i];
    out[i] = sum;
  }
}

}  // namespace

bool is_one_query(const AttentionArgs& args) {
  for (const Tensor* t : {&args.q, &args.k, &args.v, &args.y})
    if (t->dtype() != DType::F32 || t->stride(-1) != 1) return false;
  return args.q.dim(1) == 1 && args.q.dim(3) % kQueryLanes == 0 && !args.key_mask && !args.log_sum;
}

void attention_of_one_query(const AttentionArgs& args) {
  const Tensor &q = args.q, &k = args.k, &v = args.v, &y = args.y;
  const float scale = args.scale;
  const int64_t batch = q.dim(0), heads = q.dim(2), width = q.dim(3), keys = k.dim(1), kv_heads = k.dim(2);
  const Workers workers = workers_of(y);
  const auto memory = workers.stream.allocate(static_cast<size_t>(batch * heads * keys) * sizeof(float));
  auto* scores = static_cast<float*>(memory.get());
  workers.threads.parallel_ranges(batch * heads, 4, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t b = n / heads, h = n % heads, g = h / (heads / kv_heads);
      float* own = scores + n * keys;
      const float most = score_keys(q.data<float>() + b * q.stride(0) + h * q.stride(2),
                                    k.data<float>() + b * k.stride(0) + g * k.stride(2), k.stride(1), keys, width, scale, own);
      double sum = 0;
      for (int64_t j = 0; j < keys; ++j) {
        own[j] = std::exp(own[j] - most);
        sum += static_cast<double>(own[j]);
      }
      const auto inverse = static_cast<float>(1.0 / sum);
      for (int64_t j = 0; j < keys; ++j) own[j] *= inverse;
      mix_values(own, v.data<float>() + b * v.stride(0) + g * v.stride(2), v.stride(1), keys, width,
                 y.data<float>() + b * y.stride(0) + h * y.stride(2));
    }
  });
}

}  // namespace flux2::gemm
