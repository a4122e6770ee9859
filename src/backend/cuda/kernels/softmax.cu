#include <cmath>

#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/parts.h"

namespace flux2::cuda {

namespace {

constexpr int kThreads = 256;

// A block per query. In place is safe: an element is read last by the thread that writes it.
template <class T>
__global__ void softmax_kernel(const float* scores, T* probabilities, int64_t row_stride, int64_t keys, int64_t first_query,
                               bool causal, const int32_t* key_mask, float* log_sum) {
  const float* s = scores + blockIdx.x * row_stride;
  T* p = probabilities + blockIdx.x * row_stride;
  const int64_t visible = causal ? min(keys, first_query + blockIdx.x + 1) : keys;
  const auto sees = [&](int64_t j) { return j < visible && (!key_mask || key_mask[j] != 0); };

  float largest = -INFINITY;
  for (int64_t j = threadIdx.x; j < visible; j += kThreads)
    if (sees(j)) largest = fmaxf(largest, s[j]);
  largest = block_max<kThreads>(largest);
  float total = 0;
  for (int64_t j = threadIdx.x; j < visible; j += kThreads)
    if (sees(j)) total += expf(s[j] - largest);
  total = block_sum<kThreads>(total);
  const float inverse = total > 0 ? 1.0f / total : 0.0f;
  for (int64_t j = threadIdx.x; j < keys; j += kThreads) p[j] = from_float<T>(sees(j) ? expf(s[j] - largest) * inverse : 0.0f);
  if (log_sum && threadIdx.x == 0) log_sum[blockIdx.x] = largest + logf(total);
}

}  // namespace

void masked_softmax(const SoftmaxArgs& args) {
  CudaStream& stream = stream_for(args.scores);
  with_float("attention", args.probabilities.dtype(), [&]<class T>(T) {
    softmax_kernel<T><<<blocks_for("attention", args.scores.dim(0), 1), kThreads, 0, stream.handle()>>>(
        args.scores.data<float>(), args.probabilities.data<T>(), args.scores.stride(0), args.keys, args.first_query, args.causal,
        args.key_mask, args.log_sum);
  });
  stream.enqueued("attention");
}

}  // namespace flux2::cuda
