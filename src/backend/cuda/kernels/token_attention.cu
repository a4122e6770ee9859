#include <algorithm>
#include <bit>
#include <cmath>

#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/early.cuh"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/parts.h"

// Attention of a language model's next token, from the products to what the next product reads: norm and rotation of its query
// and key, the key's place in the cache, and the attention itself. Up to eight blocks share the keys of a head; they form a
// cluster and add up their results in shared memory. The keys and values of earlier tokens are read before the products have
// ended (early.cuh).
namespace flux2::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWide = 8;                    // elements of a vector
constexpr int kLanes = 8;                   // threads that share a key
constexpr int kGroups = kThreads / kLanes;  // keys that are scored side by side
constexpr int kLargestWidth = 256;
constexpr int64_t kLargestKeys = 8192;
constexpr int kMostBlocks = 8;     // of a cluster
constexpr int kKeysOfABlock = 64;  // while fewer than kMostBlocks share them
constexpr int kKeysAtOnce = 2;     // that a thread scores
constexpr int kValuesAtOnce = 4;   // that a thread adds

struct Arguments {
  const Bf16 *q, *k;
  const void *q_norm, *k_norm;  // null: no norm
  bool norms_are_bf16;
  const float *cosine, *sine;
  Bf16 *keys, *values;
  Bf16* y;
  int64_t q_head, k_head, keys_token, keys_head, values_token, values_head, y_head;  // strides
  const int32_t* mask;
  int count, row, heads, shared_by, width;
  int blocks, share;  // of a head, and the keys each of them sees
  float eps, scale;
  bool interleaved;
};

__device__ inline float value_at(const uint4& v, int i) {
  const uint32_t word = i / 2 == 0 ? v.x : i / 2 == 1 ? v.y : i / 2 == 2 ? v.z : v.w;
  const float2 two = unpacked(word);
  return i % 2 == 0 ? two.x : two.y;
}

// What a lane holds of a head: elements lane, lane + 32, …
constexpr int kOfLane = kLargestWidth / 32;

__device__ inline void load_norm(const Arguments& a, const void* norm, float (&weights)[kOfLane]) {
#pragma unroll
  for (int j = 0; j < kOfLane; ++j) {
    const int i = static_cast<int>(threadIdx.x % 32) + 32 * j;
    weights[j] = 1.0f;
    if (!norm || i >= a.width) continue;
    weights[j] = a.norms_are_bf16 ? as_float(static_cast<const Bf16*>(norm)[i]) : static_cast<const float*>(norm)[i];
  }
}

// One warp: norm and rotation of a head of the new token, into shared memory. All loads are asked for before the first is used.
__device__ inline void turn_head(const Arguments& a, const Bf16* from, bool norm, const float (&weights)[kOfLane], float* normed,
                                 float* out) {
  const int lane = threadIdx.x % 32, half = a.width / 2;
  float values[kOfLane], cosine[kOfLane], sine[kOfLane], squares = 0;
#pragma unroll
  for (int j = 0; j < kOfLane; ++j) {
    const int i = min(lane + 32 * j, a.width - 1), angle = a.interleaved ? i / 2 : i < half ? i : i - half;
    values[j] = __bfloat162float(__ushort_as_bfloat16(load_written_half(from + i)));
    cosine[j] = load_written_float(a.cosine + angle);
    sine[j] = load_written_float(a.sine + angle);
  }
#pragma unroll
  for (int j = 0; j < kOfLane; ++j)
    if (lane + 32 * j < a.width) squares = fmaf(values[j], values[j], squares);
  const float inverse = norm ? rsqrtf(warp_sum(squares) / static_cast<float>(a.width) + a.eps) : 1.0f;
#pragma unroll
  for (int j = 0; j < kOfLane; ++j)
    if (lane + 32 * j < a.width) normed[lane + 32 * j] = values[j] * inverse * weights[j];
  __syncwarp();
#pragma unroll
  for (int j = 0; j < kOfLane; ++j) {
    const int i = lane + 32 * j;
    if (i >= a.width) continue;
    const bool first = a.interleaved ? i % 2 == 0 : i < half;
    const int partner = a.interleaved ? i ^ 1 : first ? i + half : i - half;
    out[i] = normed[i] * cosine[j] + (first ? -sine[j] : sine[j]) * normed[partner];
  }
}

// The address, in another block of the cluster, of what lies at p in this one.
__device__ inline float of_block(const float* p, int block) {
  float v = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %1, %2;\n"
      "ld.shared::cluster.f32 %0, [remote];\n}"
      : "=f"(v)
      : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(p))), "r"(block)
      : "memory");
#else
  v = *p;
#endif
  return v;
}
__device__ inline void sync_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
#endif
}

template <int kVectors>  // of a key that a thread scores
__global__ void __launch_bounds__(kThreads) token_attention_kernel(const __grid_constant__ Arguments a) {
  extern __shared__ float scores[];  // [share]
  __shared__ __align__(16) float partial[kThreads * kWide];
  __shared__ float query[kLargestWidth], own_key[kLargestWidth], normed[2][kLargestWidth];
  __shared__ float totals[kThreads];
  __shared__ float result[kLargestWidth + 2];  // sums of values, sum of weights, largest score
  let_next_begin();
  const int head = blockIdx.x / a.blocks, block = blockIdx.x % a.blocks, key_head = head / a.shared_by;
  const int start = block * a.share, count = min(a.share, a.count - start), own = a.row - start;
  const bool has_own = own >= 0 && own < count;
  Bf16* const keys = a.keys + key_head * a.keys_head + start * a.keys_token;
  const Bf16* const values = a.values + key_head * a.values_head + start * a.values_token;

  const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes, vectors = a.width / kWide;
  int offsets[kVectors];
#pragma unroll
  for (int c = 0; c < kVectors; ++c) offsets[c] = lane + c * kLanes < vectors ? (lane + c * kLanes) * kWide : 0;
  uint4 key[kKeysAtOnce][kVectors];
  const auto load_keys = [&](int first) {
#pragma unroll
    for (int s = 0; s < kKeysAtOnce; ++s)
#pragma unroll
      for (int c = 0; c < kVectors; ++c)
        key[s][c] = load_written(keys + min(first + s * kGroups + group, count - 1) * a.keys_token + offsets[c]);
  };
  // A thread adds one vector of the head's width of every parts-th value.
  const int parts = kThreads / vectors, part = threadIdx.x / vectors, column = threadIdx.x % vectors * kWide;
  uint4 value[kValuesAtOnce];
  const auto load_values = [&](int first) {
#pragma unroll
    for (int s = 0; s < kValuesAtOnce; ++s)
      value[s] = load_written(values + min(first + s * parts, count - 1) * a.values_token + column);
  };
  int visible[kKeysAtOnce];
  const auto load_mask = [&](int first) {
#pragma unroll
    for (int s = 0; s < kKeysAtOnce; ++s) visible[s] = a.mask ? a.mask[start + min(first + s * kGroups + group, count - 1)] : 1;
  };
  load_keys(0);
  load_values(part);
  load_mask(0);
  float weights[kOfLane];  // the first warp turns the query, the second one the key
  if (threadIdx.x < 64) load_norm(a, threadIdx.x < 32 ? a.q_norm : a.k_norm, weights);

  wait_for_earlier();
  if (threadIdx.x < 32) {
    turn_head(a, a.q + head * a.q_head, a.q_norm != nullptr, weights, normed[0], query);
  } else if (threadIdx.x < 64 && has_own) {
    turn_head(a, a.k + key_head * a.k_head, a.k_norm != nullptr, weights, normed[1], own_key);
    __syncwarp();
    for (int i = threadIdx.x - 32; i < a.width; i += 32) {
      const Bf16 rounded = from_float<Bf16>(own_key[i]);  // as the tokens after this one will see it
      own_key[i] = as_float(rounded);
      if (head % a.shared_by == 0) keys[own * a.keys_token + i] = rounded;
    }
  }
  if (has_own && part < parts) {  // its value is there only now
#pragma unroll
    for (int s = 0; s < kValuesAtOnce; ++s)
      if (part + s * parts == own) value[s] = load_written(values + own * a.values_token + column);
  }
  __syncthreads();

  {
    float q[kVectors][kWide];
#pragma unroll
    for (int c = 0; c < kVectors; ++c)
#pragma unroll
      for (int i = 0; i < kWide; ++i) q[c][i] = lane + c * kLanes < vectors ? query[offsets[c] + i] : 0.0f;
    for (int first = 0; first < count; first += kKeysAtOnce * kGroups) {  // the same for all threads: every lane shuffles
      if (first > 0) {
        load_keys(first);
        load_mask(first);
      }
#pragma unroll
      for (int s = 0; s < kKeysAtOnce; ++s) {
        const int t = first + s * kGroups + group;
        float sum = 0;
#pragma unroll
        for (int c = 0; c < kVectors; ++c)
#pragma unroll
          for (int i = 0; i < kWide; ++i) sum = fmaf(q[c][i], t == own ? own_key[offsets[c] + i] : value_at(key[s][c], i), sum);
        for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (lane == 0 && t < count) scores[t] = visible[s] != 0 ? sum * a.scale : -INFINITY;
      }
    }
  }
  __syncthreads();

  float largest = -INFINITY;  // every warp looks at all scores: cheaper than asking each other
  for (int t = threadIdx.x % 32; t < count; t += 32) largest = fmaxf(largest, scores[t]);
  largest = warp_max(largest);
  const float base = largest == -INFINITY ? 0.0f : largest;
  if (part < parts) {
    float sums[kWide] = {}, total = 0;
    for (int first = part; first < count; first += kValuesAtOnce * parts) {
      if (first > part) load_values(first);
#pragma unroll
      for (int s = 0; s < kValuesAtOnce; ++s) {
        const int t = first + s * parts;
        if (t >= count) continue;
        const float weight = __expf(scores[t] - base);
        total += weight;
#pragma unroll
        for (int i = 0; i < kWide; ++i) sums[i] = fmaf(weight, value_at(value[s], i), sums[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kWide; ++i) partial[part * a.width + column + i] = sums[i];
    if (column == 0) totals[part] = total;
  }
  __syncthreads();
  Bf16* const y = a.y + head * a.y_head;
  const int i = threadIdx.x;  // kThreads are enough for the width
  float sum = 0, total = 0;
  if (i < a.width)
    for (int p = 0; p < parts; ++p) {
      sum += partial[p * a.width + i];
      total += totals[p];
    }
  if (a.blocks == 1) {
    if (i < a.width) y[i] = from_float<Bf16>(total > 0 ? sum / total : 0.0f);  // zero where no key is seen
    return;
  }
  if (i < a.width) result[i] = sum;
  if (i == 0) {
    result[kLargestWidth] = total;
    result[kLargestWidth + 1] = largest;
  }
  sync_cluster();
  if (block == 0 && i < a.width) {
    float top = -INFINITY;
    for (int b = 0; b < a.blocks; ++b) top = fmaxf(top, of_block(result + kLargestWidth + 1, b));
    sum = total = 0;
    for (int b = 0; b < a.blocks; ++b) {
      const float of_it = of_block(result + kLargestWidth + 1, b);
      const float weight = of_it == -INFINITY ? 0.0f : __expf(of_it - top);
      sum = fmaf(weight, of_block(result + i, b), sum);
      total = fmaf(weight, of_block(result + kLargestWidth, b), total);
    }
    y[i] = from_float<Bf16>(total > 0 ? sum / total : 0.0f);
  }
  sync_cluster();  // shared memory must not go before it was read
}

bool readable(const Tensor& t) {
  for (int axis = 1; axis < 3; ++axis)
    if (t.dim(axis) > 1 && t.stride(axis) % kWide != 0) return false;
  return t.dtype() == DType::BF16 && t.stride(3) == 1 && is_aligned(t.raw(), 16);
}

bool is_norm(const Tensor* weight) {  // read early, so it must not be converted first
  return !weight || ((weight->dtype() == DType::BF16 || weight->dtype() == DType::F32) && weight->is_contiguous());
}

// One op after the other.
void in_steps(const TokenAttentionArgs& args) {
  const auto turned = [&](const Tensor& x, const Tensor* norm, const Tensor& y) {
    if (norm) norm_rope({x, *norm, nullptr, args.cosine, args.sine, y, args.eps, args.interleaved});
    else rope({x, args.cosine, args.sine, y, args.interleaved, false});
  };
  const Tensor q = Tensor::like(args.q, args.q.shape());
  turned(args.q, args.q_norm, q);
  turned(args.k, args.k_norm, args.keys.narrowed(1, args.row, 1));
  attention({q, args.keys, args.values, args.y, args.key_mask, nullptr, args.scale, false});
}

}  // namespace

bool token_attention_fits(const TokenAttentionArgs& args) {
  const Tensor &q = args.q, &keys = args.keys;
  const int64_t width = q.dim(3);
  const bool norms_agree = !args.q_norm || !args.k_norm || args.q_norm->dtype() == args.k_norm->dtype();
  return q.dtype() == DType::BF16 && args.k.dtype() == DType::BF16 && args.y.dtype() == DType::BF16 && width % kWide == 0 &&
         width % 2 == 0 && width <= kLargestWidth && q.stride(3) == 1 && args.k.stride(3) == 1 && args.y.stride(3) == 1 &&
         readable(keys) && readable(args.values) && keys.dim(1) <= kLargestKeys && is_norm(args.q_norm) && is_norm(args.k_norm) &&
         norms_agree && args.cosine.is_contiguous() && args.sine.is_contiguous() &&
         (!args.key_mask || args.key_mask->is_contiguous());
}

void token_attention(const TokenAttentionArgs& args) {
  if (!token_attention_fits(args)) return in_steps(args);
  CudaStream& stream = stream_for(args.y);
  const Tensor &q = args.q, &k = args.k, &keys = args.keys, &values = args.values;
  const auto count = static_cast<int>(keys.dim(1)), heads = static_cast<int>(q.dim(2)), width = static_cast<int>(q.dim(3));
  const auto kernel = width <= 1 * kLanes * kWide   ? token_attention_kernel<1>
                      : width <= 2 * kLanes * kWide ? token_attention_kernel<2>
                                                    : token_attention_kernel<4>;
  const bool clusters = begins_early(reinterpret_cast<const void*>(kernel));
  // A power of two: not every GPU has room for clusters of other sizes. Every block then has at least one key.
  const auto parts = std::min(std::bit_ceil(static_cast<unsigned>(ceil_div(count, kKeysOfABlock))), unsigned{kMostBlocks});
  const int wanted = clusters ? static_cast<int>(parts) : 1;
  const int share = static_cast<int>(ceil_div(count, wanted)), blocks = static_cast<int>(ceil_div(count, share));
  const Tensor* norm = args.q_norm ? args.q_norm : args.k_norm;
  const Arguments a{.q = q.data<Bf16>(),
                    .k = k.data<Bf16>(),
                    .q_norm = args.q_norm ? args.q_norm->raw() : nullptr,
                    .k_norm = args.k_norm ? args.k_norm->raw() : nullptr,
                    .norms_are_bf16 = norm && norm->dtype() == DType::BF16,
                    .cosine = args.cosine.data<float>(),
                    .sine = args.sine.data<float>(),
                    .keys = keys.data<Bf16>(),
                    .values = values.data<Bf16>(),
                    .y = args.y.data<Bf16>(),
                    .q_head = q.stride(2),
                    .k_head = k.stride(2),
                    .keys_token = keys.stride(1),
                    .keys_head = keys.stride(2),
                    .values_token = values.stride(1),
                    .values_head = values.stride(2),
                    .y_head = args.y.stride(2),
                    .mask = args.key_mask ? args.key_mask->data<int32_t>() : nullptr,
                    .count = count,
                    .row = static_cast<int>(args.row),
                    .heads = heads,
                    .shared_by = heads / static_cast<int>(keys.dim(2)),
                    .width = width,
                    .blocks = blocks,
                    .share = share,
                    .eps = args.eps,
                    .scale = args.scale,
                    .interleaved = args.interleaved};
  launch_early(kernel,
               {.grid = dim3(static_cast<unsigned>(heads * blocks)),
                .threads = kThreads,
                .shared_bytes = static_cast<size_t>(share) * sizeof(float),
                .stream = stream.handle(),
                .cluster = static_cast<unsigned>(blocks)},
               a);
  stream.enqueued("token attention",
                  {.flop = 4.0 * static_cast<double>(heads) * count * width, .bytes = traffic({&q, &keys, &values, &args.y})});
}

}  // namespace flux2::cuda
