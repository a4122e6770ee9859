#include "backend/cuda/kernels/group_norm.cuh"
#include "backend/cuda/kernels/kernels.h"

// With n the normalised values, r = 1 / the group's deviation and g = dy · weight: dx = r · (g − mean(g) − n · mean(g · n)),
// means over the group. Per channel that is dx = a · dy + b · x + c, so two passes over the picture are enough: sums of every
// channel over slices of positions, and, once the groups are known, the line that a, b and c describe.
namespace flux2::cuda {

namespace {

using namespace group_norm_walk;

// Σ d, Σ d², Σ dy, Σ dy · d, where d = x − pivot and the pivot is the group's first value: a large mean must not drown the rest.
struct Sums {
  float d, squares, dy, product;
};
struct Totals {
  double d, squares, dy, product;
};
struct Line {
  float a, b, c;
};
struct ChannelGrad {
  float weight, bias;
};

// sums[picture][chunk][channel]
template <class T, int V>
__global__ void __launch_bounds__(kThreads) channel_sums(const T* x, const T* dy, Sums* sums, const Work w) {
  const Place<V> at(w);
  const int64_t picture = blockIdx.z * w.positions * w.channels;
  Sums total[V] = {};
  float base[V];
#pragma unroll
  for (int v = 0; v < V; ++v) base[v] = pivot(x + picture, at.channel + v, w.group_channels);
  walk(at, x + picture, dy + picture, w.channels, [&](int64_t, const Pack<T, V>& xs, const Pack<T, V>& dys) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const float d = as_float(xs.v[v]) - base[v], g = as_float(dys.v[v]);
      total[v].d += d;
      total[v].squares += d * d;
      total[v].dy += g;
      total[v].product += g * d;
    }
  });
  __shared__ Sums shared[kThreads * V];
#pragma unroll
  for (int v = 0; v < V; ++v) shared[threadIdx.x * V + v] = total[v];
  __syncthreads();
  const int block_channels = at.width * V;
  Sums* out = sums + (static_cast<int64_t>(blockIdx.z) * gridDim.x + blockIdx.x) * w.channels + blockIdx.y * kThreads * V;
  for (int c = threadIdx.x; c < block_channels; c += kThreads) {
    Sums s = shared[c];
    for (int lane = 1; lane < at.lanes; ++lane) {
      const Sums& more = shared[lane * block_channels + c];
      s.d += more.d, s.squares += more.squares, s.dy += more.dy, s.product += more.product;
    }
    out[c] = s;
  }
}

// The lines of group blockIdx.x in picture blockIdx.y, and what the picture adds to the gradients of weight and bias. A warp adds
// up the chunks of a channel.
template <class T, class W>
__global__ void __launch_bounds__(kThreads) group_lines(const T* x, const Sums* sums, int chunks, const W* weight, float eps,
                                                        Line* lines, ChannelGrad* grads, const Work w) {
  constexpr int kWarps = kThreads / 32;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first = blockIdx.x * w.group_channels;
  const Sums* mine = sums + static_cast<int64_t>(blockIdx.y) * chunks * w.channels + first;
  const auto channel_total = [&](int c) {
    Totals t{};
    for (int s = lane; s < chunks; s += 32) {
      const Sums part = mine[static_cast<int64_t>(s) * w.channels + c];
      t.d += part.d, t.squares += part.squares, t.dy += part.dy, t.product += part.product;
    }
    return Totals{warp_sum(t.d), warp_sum(t.squares), warp_sum(t.dy), warp_sum(t.product)};
  };
  double d = 0, squares = 0, g = 0, product = 0;  // over the group, dy times weight
  for (int c = warp; c < w.group_channels; c += kWarps) {
    const Totals t = channel_total(c);
    if (lane != 0) continue;  // the block's sum counts each channel once
    const double factor = as_float(weight[first + c]);
    d += t.d, squares += t.squares, g += factor * t.dy, product += factor * t.product;
  }
  d = block_sum<kThreads>(d);
  squares = block_sum<kThreads>(squares);
  g = block_sum<kThreads>(g);
  product = block_sum<kThreads>(product);

  const double count = static_cast<double>(w.positions) * w.group_channels;
  const double shifted = d / count;  // mean − pivot
  const double mean = as_float(x[blockIdx.y * w.positions * w.channels + first]) + shifted;
  const double inverse = rsqrt(fmax(squares / count - shifted * shifted, 0.0) + eps);
  const double mean_g = g / count, slope = inverse * inverse * (product - shifted * g) / count;
  for (int c = warp; c < w.group_channels; c += kWarps) {
    const Totals t = channel_total(c);
    if (lane != 0) continue;
    const int64_t at = static_cast<int64_t>(blockIdx.y) * w.channels + first + c;
    lines[at] = {static_cast<float>(inverse * as_float(weight[first + c])), static_cast<float>(-inverse * slope),
                 static_cast<float>(inverse * (mean * slope - mean_g))};
    grads[at] = {static_cast<float>(inverse * (t.product - shifted * t.dy)), static_cast<float>(t.dy)};
  }
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads) apply_lines(const T* x, const T* dy, const Line* lines, T* dx, const Work w) {
  const Place<V> at(w);
  const int64_t picture = blockIdx.z * w.positions * w.channels;
  Line line[V];
#pragma unroll
  for (int v = 0; v < V; ++v) line[v] = lines[static_cast<int64_t>(blockIdx.z) * w.channels + at.channel + v];
  walk(at, x + picture, dy + picture, w.channels, [&](int64_t p, const Pack<T, V>& xs, const Pack<T, V>& dys) {
    Pack<T, V> out;
#pragma unroll
    for (int v = 0; v < V; ++v)
      out.v[v] = from_float<T>(line[v].a * as_float(dys.v[v]) + line[v].b * as_float(xs.v[v]) + line[v].c);
    store_pack(dx + picture + p * w.channels + at.channel, out);
  });
}

// dweight[c] and dbias[c], added up over the pictures by a warp.
__global__ void __launch_bounds__(kThreads)
    add_pictures(const ChannelGrad* grads, int pictures, int channels, float* dweight, float* dbias) {
  const int c = (blockIdx.x * kThreads + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (c >= channels) return;
  double weight = 0, bias = 0;
  for (int p = lane; p < pictures; p += 32) {
    const ChannelGrad g = grads[static_cast<int64_t>(p) * channels + c];
    weight += g.weight, bias += g.bias;
  }
  weight = warp_sum(weight);
  bias = warp_sum(bias);
  if (lane != 0) return;
  dweight[c] = static_cast<float>(weight);
  dbias[c] = static_cast<float>(bias);
}

template <class T, class W, int V>
void launch(const GroupNormGradArgs& args, const Tensor& weight, const Tensor& dweight, const Tensor& dbias) {
  CudaStream& stream = stream_for(args.dx);
  const int64_t pictures = args.x.dim(0), channels = args.x.dim(-1);
  const Blocks<V> blocks(pictures, args.x.numel() / (pictures * channels), channels, args.groups);
  const int64_t chunks = blocks.grid.x;
  const auto sums = stream.allocate(static_cast<size_t>(pictures * chunks * channels) * sizeof(Sums));
  const auto lines = stream.allocate(static_cast<size_t>(pictures * channels) * sizeof(Line));
  const auto grads = stream.allocate(static_cast<size_t>(pictures * channels) * sizeof(ChannelGrad));
  auto* const sum = static_cast<Sums*>(sums.get());
  auto* const line = static_cast<Line*>(lines.get());
  auto* const grad = static_cast<ChannelGrad*>(grads.get());
  const T *x = args.x.data<T>(), *dy = args.dy.data<T>();
  channel_sums<T, V><<<blocks.grid, kThreads, 0, stream.handle()>>>(x, dy, sum, blocks.work);
  stream.enqueued("group_norm_grad", {.bytes = traffic({&args.x, &args.dy})});
  const dim3 groups(static_cast<unsigned>(args.groups), static_cast<unsigned>(pictures));
  group_lines<T, W><<<groups, kThreads, 0, stream.handle()>>>(x, sum, static_cast<int>(chunks), weight.data<W>(), args.eps, line,
                                                              grad, blocks.work);
  stream.enqueued("group_norm_grad");
  apply_lines<T, V><<<blocks.grid, kThreads, 0, stream.handle()>>>(x, dy, line, args.dx.data<T>(), blocks.work);
  stream.enqueued("group_norm_grad", {.bytes = traffic({&args.x, &args.dy, &args.dx})});
  add_pictures<<<blocks_for("group_norm_grad", channels, kThreads / 32), kThreads, 0, stream.handle()>>>(
      grad, static_cast<int>(pictures), static_cast<int>(channels), dweight.data<float>(), dbias.data<float>());
  stream.enqueued("group_norm_grad");
}

// The tensor itself if a kernel can write F32 into it, otherwise one that is copied into it later.
Tensor writable(const Tensor& t) {
  return t.dtype() == DType::F32 && t.is_contiguous() ? t : Tensor::like(t, DType::F32, t.shape());
}

}  // namespace

void group_norm_grad(const GroupNormGradArgs& args) {
  if (args.x.numel() == 0) {
    args.dweight.fill(0.0);
    return args.dbias.fill(0.0);
  }
  const Tensor weight = weight_vector(args.weight, args.x.dtype());
  const Tensor dweight = writable(args.dweight), dbias = writable(args.dbias);
  with_float_and_weight("group_norm_grad", args.x.dtype(), weight.dtype(), [&]<class T, class W>(T, W) {
    const bool aligned = is_aligned(args.x.raw(), 16) && is_aligned(args.dy.raw(), 16) && is_aligned(args.dx.raw(), 16);
    if (aligned && args.x.dim(-1) % kVector<T> == 0) launch<T, W, kVector<T>>(args, weight, dweight, dbias);
    else launch<T, W, 1>(args, weight, dweight, dbias);
  });
  if (dweight.raw() != args.dweight.raw()) args.dweight.copy_from(dweight);
  if (dbias.raw() != args.dbias.raw()) args.dbias.copy_from(dbias);
}

}  // namespace flux2::cuda
