#include "backend/cuda/kernels/group_norm.cuh"
#include "backend/cuda/kernels/kernels.h"

// Three kernels: every channel's sums over chunks of positions, then a scale and an offset per channel from the sums of its
// group, then the pass that applies them.
namespace flux2::cuda {

namespace {

using namespace group_norm_walk;

// partial[picture][chunk][channel] = (Σ d, Σ d²)
template <class T, int V>
__global__ void __launch_bounds__(kThreads) channel_sums(const T* x, float2* partial, const Work w) {
  const Place<V> at(w);
  const T* picture = x + blockIdx.z * w.positions * w.channels;
  float total[V] = {}, squares[V] = {}, base[V];
#pragma unroll
  for (int v = 0; v < V; ++v) base[v] = pivot(picture, at.channel + v, w.group_channels);
  walk(at, picture, w.channels, [&](int64_t, const Pack<T, V>& pack) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const float d = as_float(pack.v[v]) - base[v];
      total[v] += d;
      squares[v] += d * d;
    }
  });
  __shared__ float2 shared[kThreads * V];
#pragma unroll
  for (int v = 0; v < V; ++v) shared[threadIdx.x * V + v] = make_float2(total[v], squares[v]);
  __syncthreads();
  const int block_channels = at.width * V;
  float2* out = partial + (static_cast<int64_t>(blockIdx.z) * gridDim.x + blockIdx.x) * w.channels + blockIdx.y * kThreads * V;
  for (int c = threadIdx.x; c < block_channels; c += kThreads) {
    float2 s = shared[c];
    for (int lane = 1; lane < at.lanes; ++lane) {
      const float2 more = shared[lane * block_channels + c];
      s.x += more.x;
      s.y += more.y;
    }
    out[c] = s;
  }
}

// y = factor · x + offset for every channel of group blockIdx.x in picture blockIdx.y.
template <class T, class W>
__global__ void __launch_bounds__(kThreads) group_coefficients(const T* x, const float2* partial, int chunks, const W* weight,
                                                               const W* bias, float eps, float2* coefficients, const Work w) {
  const int first = blockIdx.x * w.group_channels;
  const float2* sums = partial + static_cast<int64_t>(blockIdx.y) * chunks * w.channels;
  double total = 0, squares = 0;
#pragma unroll 8
  for (int i = threadIdx.x; i < chunks * w.group_channels; i += kThreads) {
    const int chunk = i / w.group_channels;
    const float2 s = sums[chunk * w.channels + first + i - chunk * w.group_channels];
    total += s.x;
    squares += s.y;
  }
  total = block_sum<kThreads>(total);
  squares = block_sum<kThreads>(squares);

  const double count = static_cast<double>(w.positions) * w.group_channels;
  const double shifted = total / count;
  const double mean = as_float(x[blockIdx.y * w.positions * w.channels + first]) + shifted;
  const double inverse = rsqrt(fmax(squares / count - shifted * shifted, 0.0) + eps);
  for (int c = first + threadIdx.x; c < first + w.group_channels; c += kThreads) {
    const double factor = inverse * as_float(weight[c]);
    coefficients[static_cast<int64_t>(blockIdx.y) * w.channels + c] =
        make_float2(static_cast<float>(factor), static_cast<float>(as_float(bias[c]) - mean * factor));
  }
}

template <class T, int V, bool kSilu>
__global__ void __launch_bounds__(kThreads) apply_coefficients(const T* x, const float2* coefficients, T* y, const Work w) {
  const Place<V> at(w);
  const int64_t picture = blockIdx.z * w.positions * w.channels;
  float2 c[V];
#pragma unroll
  for (int v = 0; v < V; ++v) c[v] = coefficients[static_cast<int64_t>(blockIdx.z) * w.channels + at.channel + v];
  walk(at, x + picture, w.channels, [&](int64_t p, const Pack<T, V>& pack) {
    Pack<T, V> out;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const float value = fmaf(as_float(pack.v[v]), c[v].x, c[v].y);
      out.v[v] = from_float<T>(kSilu ? silu(value) : value);
    }
    store_pack(y + picture + p * w.channels + at.channel, out);
  });
}

template <class T, class W, int V>
void launch(const GroupNormArgs& args, const Tensor& weight, const Tensor& bias) {
  CudaStream& stream = stream_for(args.y);
  const int64_t pictures = args.x.dim(0), channels = args.x.dim(-1);
  const Blocks<V> blocks(pictures, args.x.numel() / (pictures * channels), channels, args.groups);
  const Work& w = blocks.work;
  const dim3& grid = blocks.grid;
  const int64_t chunks = grid.x;

  const auto partial = stream.allocate(static_cast<size_t>(pictures * chunks * channels) * sizeof(float2));
  const auto coefficients = stream.allocate(static_cast<size_t>(pictures * channels) * sizeof(float2));
  auto* sums = static_cast<float2*>(partial.get());
  auto* affine = static_cast<float2*>(coefficients.get());
  const dim3 groups(static_cast<unsigned>(args.groups), static_cast<unsigned>(pictures));
  const T* x = args.x.data<T>();

  channel_sums<T, V><<<grid, kThreads, 0, stream.handle()>>>(x, sums, w);
  stream.enqueued("group_norm");
  group_coefficients<T, W><<<groups, kThreads, 0, stream.handle()>>>(x, sums, static_cast<int>(chunks), weight.data<W>(),
                                                                     bias.data<W>(), args.eps, affine, w);
  stream.enqueued("group_norm");
  if (args.silu) apply_coefficients<T, V, true><<<grid, kThreads, 0, stream.handle()>>>(x, affine, args.y.data<T>(), w);
  else apply_coefficients<T, V, false><<<grid, kThreads, 0, stream.handle()>>>(x, affine, args.y.data<T>(), w);
  stream.enqueued("group_norm");
}

}  // namespace

void group_norm(const GroupNormArgs& args) {
  if (args.y.numel() == 0) return;
  // Both vectors in one dtype, so that one template serves.
  Tensor weight = weight_vector(args.weight, args.x.dtype()), bias = weight_vector(args.bias, args.x.dtype());
  if (weight.dtype() != bias.dtype()) {
    weight = weight.cast(DType::F32);
    bias = bias.cast(DType::F32);
  }
  with_float_and_weight("group_norm", args.x.dtype(), weight.dtype(), [&]<class T, class W>(T, W) {
    const bool vectors = args.x.dim(-1) % kVector<T> == 0 && is_aligned(args.x.raw(), 16) && is_aligned(args.y.raw(), 16);
    if (vectors) launch<T, W, kVector<T>>(args, weight, bias);
    else launch<T, W, 1>(args, weight, bias);
  });
}

}  // namespace flux2::cuda
