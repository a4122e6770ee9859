#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/parts.h"

namespace flux2::cuda {

namespace {

constexpr int kThreads = 256;

// Counted in 32 bits: one call unfolds a few hundred megabytes, and 64-bit divisions would cost more than the copy.
struct Geometry {
  uint32_t first, vectors_per_row, vectors;
  int height, width, channels;
  uint32_t kernel_rows, kernel_columns, out_rows, out_columns;
  ConvShape conv;
};

// A thread per V channels of one tap of one output position.
template <class T, int V>
__global__ void im2col_kernel(const T* x, T* columns, const Geometry g) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= g.vectors) return;
  const uint32_t unfolded_row = i / g.vectors_per_row;
  const uint32_t k = (i - unfolded_row * g.vectors_per_row) * V;
  const uint32_t tap = k / g.channels, channel = k - tap * g.channels;
  const uint32_t tap_row = tap / g.kernel_columns, tap_column = tap - tap_row * g.kernel_columns;
  const uint32_t position = g.first + unfolded_row;
  const uint32_t picture_row = position / g.out_columns, out_column = position - picture_row * g.out_columns;
  const uint32_t picture = picture_row / g.out_rows, out_row = picture_row - picture * g.out_rows;
  const int row = static_cast<int>(out_row * g.conv.stride + tap_row) - g.conv.pad_top;
  const int column = static_cast<int>(out_column * g.conv.stride + tap_column) - g.conv.pad_left;

  Pack<T, V> value;
#pragma unroll
  for (int v = 0; v < V; ++v) value.v[v] = from_float<T>(0.0f);
  if (tap_row < g.kernel_rows && row >= 0 && row < g.height && column >= 0 && column < g.width)
    value = load_pack<V>(x + ((static_cast<int64_t>(picture) * g.height + row) * g.width + column) * g.channels + channel);
  store_pack(columns + static_cast<int64_t>(i) * V, value);
}

// A thread per weight of the result: neighbours write neighbours, and read with a stride from the cache.
template <class T>
__global__ void turn_taps_kernel(const T* w, T* turned, int64_t count, int taps, int outputs, int channels) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const int64_t place = i / outputs;
  const int o = static_cast<int>(i - place * outputs), c = static_cast<int>(place / taps), tap = static_cast<int>(place % taps);
  turned[i] = w[(static_cast<int64_t>(o) * taps + taps - 1 - tap) * channels + c];
}

}  // namespace

void im2col(const Im2colArgs& args) {
  const Tensor &x = args.x, &columns = args.columns;
  CudaStream& stream = stream_for(columns);
  Geometry g{};
  g.first = static_cast<uint32_t>(args.first);
  g.height = static_cast<int>(x.dim(1));
  g.width = static_cast<int>(x.dim(2));
  g.channels = static_cast<int>(x.dim(3));
  g.kernel_rows = static_cast<uint32_t>(args.kernel_rows);
  g.kernel_columns = static_cast<uint32_t>(args.kernel_columns);
  g.out_rows = static_cast<uint32_t>(args.out_rows);
  g.out_columns = static_cast<uint32_t>(args.out_columns);
  g.conv = args.conv;
  with_float("conv2d", x.dtype(), [&]<class T>(T) {
    const auto run = [&]<int V>() {
      g.vectors = static_cast<uint32_t>(columns.numel() / V);
      g.vectors_per_row = static_cast<uint32_t>(columns.dim(1) / V);
      im2col_kernel<T, V>
          <<<blocks_for("conv2d", g.vectors, kThreads), kThreads, 0, stream.handle()>>>(x.data<T>(), columns.data<T>(), g);
    };
    constexpr int V = kVector<T>;
    if (g.channels % V == 0 && is_aligned(x.raw(), 16) && is_aligned(columns.raw(), 16)) run.template operator()<V>();
    else run.template operator()<1>();
  });
  stream.enqueued("conv2d");
}

void turn_taps(const Tensor& w, const Tensor& turned) {
  CudaStream& stream = stream_for(turned);
  with_float("conv2d_grad_input", w.dtype(), [&]<class T>(T) {
    turn_taps_kernel<T><<<blocks_for("conv2d_grad_input", w.numel(), kThreads), kThreads, 0, stream.handle()>>>(
        w.data<T>(), turned.data<T>(), w.numel(), static_cast<int>(w.dim(1) * w.dim(2)), static_cast<int>(w.dim(0)),
        static_cast<int>(w.dim(3)));
  });
  stream.enqueued("conv2d_grad_input");
}

}  // namespace flux2::cuda
