#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/layout.cuh"

namespace flux2::cuda {

namespace {

constexpr int kThreads = 256;

template <int V, bool kAligned, class T>
__device__ inline Pack<T, V> read(const T* p) {
  if constexpr (kAligned) {
    return load_pack<V>(p);
  } else {
    Pack<T, V> pack;
#pragma unroll
    for (int v = 0; v < V; ++v) pack.v[v] = p[v];
    return pack;
  }
}
template <int V, bool kAligned, class T>
__device__ inline void write(T* p, const Pack<T, V>& pack) {
  if constexpr (kAligned) {
    store_pack(p, pack);
  } else {
#pragma unroll
    for (int v = 0; v < V; ++v) p[v] = pack.v[v];
  }
}

// Both rotate (a, b) to (a·c − b·s, b·c + a·s). `space` walks x, y and the tables together, an item at a time.

// An item is V neighbours, V / 2 pairs.
template <class T, int V, bool kAligned>
__global__ void rope_interleaved(const __grid_constant__ Layout<3> space, const T* x, const float* cosine, const float* sine,
                                 T* y, float sign) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= space.count) return;
  int64_t offset[3];
  space.offsets(i, offset);
  const Pack<T, V> in = read<V, kAligned>(x + offset[0]);
  Pack<T, V> out;
#pragma unroll
  for (int pair = 0; pair < V / 2; ++pair) {
    const float c = cosine[offset[2] + pair], s = sign * sine[offset[2] + pair];
    const float a = as_float(in.v[2 * pair]), b = as_float(in.v[2 * pair + 1]);
    out.v[2 * pair] = from_float<T>(a * c - b * s);
    out.v[2 * pair + 1] = from_float<T>(b * c + a * s);
  }
  write<V, kAligned>(y + offset[1], out);
}

// An item is V neighbours of the first half and their V partners in the second.
template <class T, int V, bool kAligned>
__global__ void rope_halves(const __grid_constant__ Layout<3> space, const T* x, const float* cosine, const float* sine, T* y,
                            float sign, int half) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= space.count) return;
  int64_t offset[3];
  space.offsets(i, offset);
  const Pack<T, V> first = read<V, kAligned>(x + offset[0]), second = read<V, kAligned>(x + offset[0] + half);
  Pack<T, V> low, high;
#pragma unroll
  for (int v = 0; v < V; ++v) {
    const float c = cosine[offset[2] + v], s = sign * sine[offset[2] + v];
    const float a = as_float(first.v[v]), b = as_float(second.v[v]);
    low.v[v] = from_float<T>(a * c - b * s);
    high.v[v] = from_float<T>(b * c + a * s);
  }
  write<V, kAligned>(y + offset[1], low);
  write<V, kAligned>(y + offset[1] + half, high);
}

bool rows_start_aligned(const Tensor& t, int v) {
  bool aligned = is_aligned(t.raw(), 16);
  for (int axis = 0; axis < 3; ++axis) aligned = aligned && (t.dim(axis) == 1 || t.stride(axis) % v == 0);
  return aligned;
}

}  // namespace

void rope(const RopeArgs& args) {
  const Tensor &x = args.x, &y = args.y;
  if (y.numel() == 0) return;
  CudaStream& stream = stream_for(y);
  const Tensor cosine = args.cosine.contiguous(), sine = args.sine.contiguous();
  const int64_t d = x.dim(3), half = d / 2;
  const float sign = args.inverse ? -1.0f : 1.0f;
  with_float("rope", x.dtype(), [&]<class T>(T) {
    const auto run = [&]<int V, bool kAligned>() {
      const int64_t items = (args.interleaved ? d : half) / V, table_step = args.interleaved ? V / 2 : V;
      const auto space = layout_of<3>(Shape{x.dim(0), x.dim(1), x.dim(2), items},
                                      {Shape{x.stride(0), x.stride(1), x.stride(2), V},
                                       Shape{y.stride(0), y.stride(1), y.stride(2), V}, Shape{0, half, 0, table_step}});
      const unsigned blocks = blocks_for("rope", space.count, kThreads);
      if (args.interleaved)
        rope_interleaved<T, V, kAligned><<<blocks, kThreads, 0, stream.handle()>>>(space, x.data<T>(), cosine.data<float>(),
                                                                                   sine.data<float>(), y.data<T>(), sign);
      else
        rope_halves<T, V, kAligned><<<blocks, kThreads, 0, stream.handle()>>>(
            space, x.data<T>(), cosine.data<float>(), sine.data<float>(), y.data<T>(), sign, static_cast<int>(half));
    };
    constexpr int V = kVector<T>;
    const bool whole = (args.interleaved ? d : half) % V == 0;
    if (whole && rows_start_aligned(x, V) && rows_start_aligned(y, V)) run.template operator()<V, true>();
    else if (args.interleaved) run.template operator()<2, false>();
    else run.template operator()<1, false>();
  });
  stream.enqueued("rope", {.bytes = traffic({&x, &y})});
}

}  // namespace flux2::cuda
