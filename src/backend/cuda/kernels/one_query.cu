#include <cmath>

#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/parts.h"

// Attention of one query, as a language model has it for its next token: a block for each head keeps the scores of all keys in
// shared memory. Everything between the stored values is F32.
namespace flux2::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWide = 8;                    // elements of a vector
constexpr int kLanes = 8;                   // threads that share a key
constexpr int kGroups = kThreads / kLanes;  // keys that are scored side by side
constexpr int kLargestWidth = 256;
constexpr int64_t kLargestKeys = 8192;

struct Strides {
  int64_t batch, token, head;  // in elements
};

struct Arguments {
  const void *q, *k, *v;
  void* y;
  Strides q_stride, k_stride, v_stride, y_stride;
  const int32_t* key_mask;  // row b at b · keys
  float* log_sum;           // [B, H]
  int keys, heads, shared_by, width;
  float scale;
};

// Eight elements, as they are stored.
template <class T>
struct Vector {
  static constexpr int kPart = kVector<T>;
  Pack<T, kPart> parts[kWide / kPart];

  __device__ explicit Vector(const T* at) {
#pragma unroll
    for (int p = 0; p < kWide / kPart; ++p) parts[p] = load_pack<kPart>(at + p * kPart);
  }
  __device__ float operator[](int i) const { return as_float(parts[i / kPart].v[i % kPart]); }
};

// scores[t] = scale · q · k[t], −∞ for a hidden key. Eight lanes share a key: lane l takes vectors l, l + 8, … of its kVectors.
template <int kVectors, class T>
__device__ void score_keys(const T* q, const T* k, const int32_t* mask, const Arguments& a, float* scores) {
  constexpr int kSteps = kVectors <= 2 ? 4 : 2;  // keys a lane asks for before it multiplies the first one
  const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes, vectors = a.width / kWide;
  float query[kVectors][kWide];
  int offsets[kVectors];
#pragma unroll
  for (int c = 0; c < kVectors; ++c) {
    const bool inside = lane + c * kLanes < vectors;
    offsets[c] = inside ? (lane + c * kLanes) * kWide : 0;  // past the end: any vector, times zero
    const Vector<T> values(q + offsets[c]);
#pragma unroll
    for (int i = 0; i < kWide; ++i) query[c][i] = inside ? values[i] : 0.0f;
  }
  for (int start = 0; start < a.keys; start += kSteps * kGroups) {  // the same for all threads, so that every lane shuffles
    float sums[kSteps] = {};
    {
      const T* rows[kSteps];
#pragma unroll
      for (int s = 0; s < kSteps; ++s) rows[s] = k + min(start + s * kGroups + group, a.keys - 1) * a.k_stride.token;
#pragma unroll
      for (int c = 0; c < kVectors; ++c)
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
          const Vector<T> values(rows[s] + offsets[c]);
#pragma unroll
          for (int i = 0; i < kWide; ++i) sums[s] = fmaf(query[c][i], values[i], sums[s]);
        }
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      for (int step = kLanes / 2; step > 0; step /= 2) sums[s] += __shfl_xor_sync(0xffffffffu, sums[s], step);
      const int t = start + s * kGroups + group;
      if (lane == 0 && t < a.keys) scores[t] = !mask || mask[t] != 0 ? sums[s] * a.scale : -INFINITY;
    }
  }
}

template <int kVectors, class T>
__global__ void __launch_bounds__(kThreads) one_query_kernel(const Arguments a) {
  extern __shared__ float scores[];  // [keys]
  __shared__ float partial[kThreads * kWide];
  const int head = blockIdx.x, key_head = head / a.shared_by;
  const int64_t batch = blockIdx.y;
  const T* const q = static_cast<const T*>(a.q) + batch * a.q_stride.batch + head * a.q_stride.head;
  const T* const k = static_cast<const T*>(a.k) + batch * a.k_stride.batch + key_head * a.k_stride.head;
  const T* const v = static_cast<const T*>(a.v) + batch * a.v_stride.batch + key_head * a.v_stride.head;
  T* const y = static_cast<T*>(a.y) + batch * a.y_stride.batch + head * a.y_stride.head;

  score_keys<kVectors>(q, k, a.key_mask ? a.key_mask + batch * a.keys : nullptr, a, scores);
  __syncthreads();

  float largest = -INFINITY;
  for (int t = threadIdx.x; t < a.keys; t += kThreads) largest = fmaxf(largest, scores[t]);
  largest = block_max<kThreads>(largest);
  const float base = largest == -INFINITY ? 0.0f : largest;
  float total = 0;
  for (int t = threadIdx.x; t < a.keys; t += kThreads) {
    scores[t] = __expf(scores[t] - base);
    total += scores[t];
  }
  total = block_sum<kThreads>(total);  // its barriers let everyone see the weights, too

  // A thread takes one vector of the head's width and every parts-th key.
  const int vectors = a.width / kWide, parts = kThreads / vectors, part = threadIdx.x / vectors;
  const int column = threadIdx.x % vectors * kWide;
  if (part < parts) {
    float sums[kWide] = {};
#pragma unroll 4
    for (int t = part; t < a.keys; t += parts) {
      const Vector<T> values(v + t * a.v_stride.token + column);
      const float weight = scores[t];
#pragma unroll
      for (int i = 0; i < kWide; ++i) sums[i] = fmaf(weight, values[i], sums[i]);
    }
#pragma unroll
    for (int i = 0; i < kWide; ++i) partial[part * a.width + column + i] = sums[i];
  }
  __syncthreads();
  const float inverse = total > 0 ? 1.0f / total : 0.0f;  // zero where no key is seen
  if (threadIdx.x < a.width) {                            // at most kThreads wide
    float sum = 0;
    for (int p = 0; p < parts; ++p) sum += partial[p * a.width + threadIdx.x];
    y[threadIdx.x] = from_float<T>(sum * inverse);
  }
  if (a.log_sum && threadIdx.x == 0) a.log_sum[batch * a.heads + head] = largest + logf(total);
}

Strides strides_of(const Tensor& t) { return {t.stride(0), t.stride(1), t.stride(2)}; }

// Rows that 16-byte loads can read.
bool readable(const Tensor& t) {
  const int64_t wide = 16 / info(t.dtype()).block_bytes;
  for (int axis = 0; axis < 3; ++axis)
    if (t.dim(axis) > 1 && t.stride(axis) % wide != 0) return false;
  return t.stride(3) == 1 && is_aligned(t.raw(), 16);
}

}  // namespace

bool one_query_attention_fits(const AttentionArgs& args) {
  const Tensor &q = args.q, &k = args.k, &v = args.v, &y = args.y;
  return q.dim(1) == 1 && k.dim(1) >= 1 && k.dim(1) <= kLargestKeys && q.dim(3) % kWide == 0 && q.dim(3) <= kLargestWidth &&
         q.dim(0) <= 65535 && (q.dtype() == DType::BF16 || q.dtype() == DType::F32) && k.dtype() == q.dtype() &&
         v.dtype() == q.dtype() && y.dtype() == q.dtype() && readable(q) && readable(k) && readable(v) && y.stride(3) == 1;
}

// The one query is the last of its sequence: it sees every key, causal or not.
void one_query_attention(const AttentionArgs& args) {
  CudaStream& stream = stream_for(args.y);
  Tensor mask;
  if (args.key_mask) mask = args.key_mask->contiguous();
  const int64_t batches = args.q.dim(0), heads = args.q.dim(2), keys = args.k.dim(1), width = args.q.dim(3);
  const Arguments a{.q = args.q.raw(),
                    .k = args.k.raw(),
                    .v = args.v.raw(),
                    .y = args.y.raw(),
                    .q_stride = strides_of(args.q),
                    .k_stride = strides_of(args.k),
                    .v_stride = strides_of(args.v),
                    .y_stride = strides_of(args.y),
                    .key_mask = mask.defined() ? mask.data<int32_t>() : nullptr,
                    .log_sum = args.log_sum ? args.log_sum->data<float>() : nullptr,
                    .keys = static_cast<int>(keys),
                    .heads = static_cast<int>(heads),
                    .shared_by = static_cast<int>(heads / args.k.dim(2)),
                    .width = static_cast<int>(width),
                    .scale = args.scale};
  with_float("attention", args.q.dtype(), [&]<class T>(T) {
    const auto run = [&](auto kernel) {
      const dim3 grid(static_cast<unsigned>(heads), static_cast<unsigned>(batches));
      kernel<<<grid, kThreads, static_cast<size_t>(keys) * sizeof(float), stream.handle()>>>(a);
    };
    if (width <= 1 * kLanes * kWide) run(one_query_kernel<1, T>);
    else if (width <= 2 * kLanes * kWide) run(one_query_kernel<2, T>);
    else run(one_query_kernel<4, T>);
  });
  stream.enqueued("attention one query", {.flop = 4.0 * static_cast<double>(batches * heads * keys * width),
                                          .bytes = traffic({&args.q, &args.k, &args.v, &args.y})});
}

}  // namespace flux2::cuda
