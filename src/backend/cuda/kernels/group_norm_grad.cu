#include <algorithm>

#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/kernels.h"

// With n the normalised values, r = 1 / the group's deviation and g = dy · weight: dx = r · (g − mean(g) − n · mean(g · n)),
// means over the group. Per channel that is dx = a · dy + b · x + c, so two passes over the picture are enough: sums of every
// channel over slices of positions, and, once the groups are known, the line that a, b and c describe.
namespace flux2::cuda {

namespace {

constexpr int kThreads = 256;

struct Work {
  int64_t positions, slice;  // of one picture
  int channels, group_channels, slices;
  float eps;
};

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

// sums[picture][slice][channel]; a block per slice, blockIdx.y, of picture blockIdx.z and kThreads channels.
template <class T>
__global__ void __launch_bounds__(kThreads) channel_sums(const T* x, const T* dy, Sums* sums, const Work w) {
  const int channel = blockIdx.x * kThreads + threadIdx.x;
  if (channel >= w.channels) return;
  const int64_t picture = blockIdx.z * w.positions * w.channels;
  const float pivot = as_float(x[picture + channel / w.group_channels * w.group_channels]);
  const int64_t begin = blockIdx.y * w.slice, end = min(begin + w.slice, w.positions);
  Sums s{};
#pragma unroll 4
  for (int64_t p = begin; p < end; ++p) {
    const float d = as_float(x[picture + p * w.channels + channel]) - pivot;
    const float g = as_float(dy[picture + p * w.channels + channel]);
    s.d += d;
    s.squares += d * d;
    s.dy += g;
    s.product += g * d;
  }
  sums[(static_cast<int64_t>(blockIdx.z) * w.slices + blockIdx.y) * w.channels + channel] = s;
}

// The lines of group blockIdx.x in picture blockIdx.y, and what the picture adds to the gradients of weight and bias.
template <class T, class W>
__global__ void __launch_bounds__(kThreads)
    group_lines(const T* x, const Sums* sums, const W* weight, Line* lines, ChannelGrad* grads, const Work w) {
  const int first = blockIdx.x * w.group_channels;
  const Sums* mine = sums + static_cast<int64_t>(blockIdx.y) * w.slices * w.channels + first;
  const auto channel_total = [&](int c) {
    Totals t{};
    for (int s = 0; s < w.slices; ++s) {
      const Sums& part = mine[static_cast<int64_t>(s) * w.channels + c];
      t.d += part.d, t.squares += part.squares, t.dy += part.dy, t.product += part.product;
    }
    return t;
  };
  double d = 0, squares = 0, g = 0, product = 0;  // over the group, dy times weight
  for (int c = threadIdx.x; c < w.group_channels; c += kThreads) {
    const Totals t = channel_total(c);
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
  const double inverse = rsqrt(fmax(squares / count - shifted * shifted, 0.0) + w.eps);
  const double mean_g = g / count, slope = inverse * inverse * (product - shifted * g) / count;
  for (int c = threadIdx.x; c < w.group_channels; c += kThreads) {
    const Totals t = channel_total(c);
    const int64_t at = static_cast<int64_t>(blockIdx.y) * w.channels + first + c;
    lines[at] = {static_cast<float>(inverse * as_float(weight[first + c])), static_cast<float>(-inverse * slope),
                 static_cast<float>(inverse * (mean * slope - mean_g))};
    grads[at] = {static_cast<float>(inverse * (t.product - shifted * t.dy)), static_cast<float>(t.dy)};
  }
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    apply_lines(const T* x, const T* dy, const Line* lines, T* dx, int64_t vectors, const Work w) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= vectors) return;
  const int64_t position = i * V / w.channels;
  const int channel = static_cast<int>(i * V - position * w.channels);
  const Line* line = lines + position / w.positions * w.channels + channel;
  const Pack<T, V> xs = load_pack<V>(x + i * V), dys = load_pack<V>(dy + i * V);
  Pack<T, V> out;
#pragma unroll
  for (int v = 0; v < V; ++v)
    out.v[v] = from_float<T>(line[v].a * as_float(dys.v[v]) + line[v].b * as_float(xs.v[v]) + line[v].c);
  store_pack(dx + i * V, out);
}

// dweight[c] and dbias[c], added up over the pictures.
__global__ void __launch_bounds__(kThreads)
    add_pictures(const ChannelGrad* grads, int pictures, int channels, float* dweight, float* dbias) {
  const int c = blockIdx.x * kThreads + threadIdx.x;
  if (c >= channels) return;
  ChannelGrad total{};
  for (int p = 0; p < pictures; ++p) {
    const ChannelGrad& g = grads[static_cast<int64_t>(p) * channels + c];
    total.weight += g.weight, total.bias += g.bias;
  }
  dweight[c] = total.weight;
  dbias[c] = total.bias;
}

}  // namespace

void group_norm_grad(const GroupNormGradArgs& args) {
  if (args.x.numel() == 0) {
    args.dweight.fill(0.0);
    return args.dbias.fill(0.0);
  }
  CudaStream& stream = stream_for(args.dx);
  const int64_t pictures = args.x.dim(0), channels = args.x.dim(-1);
  Work w{};
  w.positions = args.x.numel() / (pictures * channels);
  w.slice = std::max<int64_t>(ceil_div(w.positions, 512), 8);
  w.slices = static_cast<int>(ceil_div(w.positions, w.slice));
  w.channels = static_cast<int>(channels);
  w.group_channels = static_cast<int>(channels / args.groups);
  w.eps = args.eps;

  const auto sums = stream.allocate(static_cast<size_t>(pictures * w.slices * channels) * sizeof(Sums));
  const auto lines = stream.allocate(static_cast<size_t>(pictures * channels) * sizeof(Line));
  const auto grads = stream.allocate(static_cast<size_t>(pictures * channels) * sizeof(ChannelGrad));
  const Tensor dweight = Tensor::like(args.x, DType::F32, {channels}), dbias = Tensor::like(dweight);
  const Tensor weight = weight_vector(args.weight, args.x.dtype());
  const unsigned channel_blocks = blocks_for("group_norm_grad", channels, kThreads);
  const dim3 slices(channel_blocks, static_cast<unsigned>(w.slices), static_cast<unsigned>(pictures));
  const dim3 groups(static_cast<unsigned>(args.groups), static_cast<unsigned>(pictures));
  with_float_and_weight("group_norm_grad", args.x.dtype(), weight.dtype(), [&]<class T, class W>(T, W) {
    const T *x = args.x.data<T>(), *dy = args.dy.data<T>();
    auto* const line = static_cast<Line*>(lines.get());
    channel_sums<T><<<slices, kThreads, 0, stream.handle()>>>(x, dy, static_cast<Sums*>(sums.get()), w);
    stream.enqueued("group_norm_grad", {.bytes = traffic({&args.x, &args.dy})});
    group_lines<T, W><<<groups, kThreads, 0, stream.handle()>>>(x, static_cast<const Sums*>(sums.get()), weight.data<W>(), line,
                                                                static_cast<ChannelGrad*>(grads.get()), w);
    stream.enqueued("group_norm_grad");
    const auto apply = [&]<int V>() {
      const int64_t vectors = args.x.numel() / V;
      apply_lines<T, V><<<blocks_for("group_norm_grad", vectors, kThreads), kThreads, 0, stream.handle()>>>(
          x, dy, line, args.dx.data<T>(), vectors, w);
    };
    const bool aligned = is_aligned(x, 16) && is_aligned(dy, 16) && is_aligned(args.dx.raw(), 16);
    if (aligned && channels % kVector<T> == 0) apply.template operator()<kVector<T>>();
    else apply.template operator()<1>();
    stream.enqueued("group_norm_grad", {.bytes = traffic({&args.x, &args.dy, &args.dx})});
  });
  add_pictures<<<channel_blocks, kThreads, 0, stream.handle()>>>(static_cast<const ChannelGrad*>(grads.get()),
                                                                 static_cast<int>(pictures), w.channels, dweight.data<float>(),
                                                                 dbias.data<float>());
  stream.enqueued("group_norm_grad");
  args.dweight.copy_from(dweight);
  args.dbias.copy_from(dbias);
}

}  // namespace flux2::cuda
