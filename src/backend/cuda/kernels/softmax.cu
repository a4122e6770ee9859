#include <cmath>

#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/parts.h"

namespace flux2::cuda {

namespace {

constexpr int kThreads = 512;
constexpr int kLargestHeld = 48;  // values per thread that fit in registers: rows of up to 24576 keys

struct Row {
  int64_t stride, keys, first_query;
  bool causal;
  const int32_t* key_mask;
  float* log_sum;

  __device__ int64_t visible() const { return causal ? min(keys, first_query + blockIdx.x + 1) : keys; }
  __device__ bool sees(int64_t j) const { return j < visible() && (!key_mask || key_mask[j] != 0); }
  __device__ void report(float largest, float total) const {
    if (log_sum && threadIdx.x == 0) log_sum[blockIdx.x] = largest + logf(total);
  }
};

// A block per query, which reads its scores once and keeps them: thread t has vectors of four t, t + kThreads, …
template <class T, int kVectors>
__global__ void __launch_bounds__(kThreads) held_softmax(const float* scores, T* probabilities, const Row row) {
  const float* s = scores + blockIdx.x * row.stride;
  T* p = probabilities + blockIdx.x * row.stride;
  Pack<float, 4> held[kVectors];
#pragma unroll
  for (int n = 0; n < kVectors; ++n) {
    const int64_t j = (n * kThreads + threadIdx.x) * 4;
    if (j < row.keys) held[n] = load_pack<4>(s + j);
  }
  float largest = -INFINITY;
#pragma unroll
  for (int n = 0; n < kVectors; ++n)
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      if (!row.sees((n * kThreads + threadIdx.x) * 4 + v)) held[n].v[v] = -INFINITY;
      largest = fmaxf(largest, held[n].v[v]);
    }
  largest = block_max<kThreads>(largest);
  const float base = largest == -INFINITY ? 0.0f : largest;
  float total = 0;
#pragma unroll
  for (int n = 0; n < kVectors; ++n)
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      held[n].v[v] = __expf(held[n].v[v] - base);
      total += held[n].v[v];
    }
  total = block_sum<kThreads>(total);
  const float inverse = total > 0 ? 1.0f / total : 0.0f;
#pragma unroll
  for (int n = 0; n < kVectors; ++n) {
    const int64_t j = (n * kThreads + threadIdx.x) * 4;
    if (j >= row.keys) continue;
    Pack<T, 4> out;
#pragma unroll
    for (int v = 0; v < 4; ++v) out.v[v] = from_float<T>(held[n].v[v] * inverse);
    store_pack(p + j, out);
  }
  row.report(largest, total);
}

// Rows of any length, read three times. In place is safe: an element is read last by the thread that writes it.
template <class T>
__global__ void __launch_bounds__(kThreads) long_softmax(const float* scores, T* probabilities, const Row row) {
  const float* s = scores + blockIdx.x * row.stride;
  T* p = probabilities + blockIdx.x * row.stride;
  float largest = -INFINITY;
  for (int64_t j = threadIdx.x; j < row.visible(); j += kThreads)
    if (row.sees(j)) largest = fmaxf(largest, s[j]);
  largest = block_max<kThreads>(largest);
  float total = 0;
  for (int64_t j = threadIdx.x; j < row.visible(); j += kThreads)
    if (row.sees(j)) total += __expf(s[j] - largest);
  total = block_sum<kThreads>(total);
  const float inverse = total > 0 ? 1.0f / total : 0.0f;
  for (int64_t j = threadIdx.x; j < row.keys; j += kThreads)
    p[j] = from_float<T>(row.sees(j) ? __expf(s[j] - largest) * inverse : 0.0f);
  row.report(largest, total);
}

}  // namespace

void masked_softmax(const SoftmaxArgs& args) {
  CudaStream& stream = stream_for(args.scores);
  const Row row{args.scores.stride(0), args.keys, args.first_query, args.causal, args.key_mask, args.log_sum};
  with_float("attention", args.probabilities.dtype(), [&]<class T>(T) {
    const auto run = [&](auto kernel) {
      kernel<<<blocks_for("attention", args.scores.dim(0), 1), kThreads, 0, stream.handle()>>>(args.scores.data<float>(),
                                                                                               args.probabilities.data<T>(), row);
    };
    const int64_t held = ceil_div(args.keys, kThreads);
    if (held <= 4) run(held_softmax<T, 1>);
    else if (held <= 16) run(held_softmax<T, 4>);
    else if (held <= 32) run(held_softmax<T, 8>);
    else if (held <= kLargestHeld) run(held_softmax<T, kLargestHeld / 4>);
    else run(long_softmax<T>);
  });
  stream.enqueued("attention");
}

}  // namespace flux2::cuda
