#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/parts.h"

namespace flux2::cuda {

namespace {

constexpr int kThreads = 256;

// Along one axis, an even output pixel (phase 0) sees the pixel before through tap 0 and its own through taps 1 and 2; an odd
// one (phase 1) its own through taps 0 and 1 and the next through tap 2.
__device__ inline int first_tap(int phase, int place) { return place == 0 ? 0 : phase == 0 ? 1 : 2; }
__device__ inline int end_tap(int phase, int place) { return place == 1 ? 3 : phase == 0 ? 1 : 2; }

template <class T>
__global__ void sum_taps_kernel(const T* w, T* phases, int64_t count, int channels) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;  // [row phase][column phase][out][2][2][in]
  if (i >= count) return;
  const int64_t place = i / channels, per_phase = count / channels / 4;
  const int c = static_cast<int>(i - place * channels);
  const int phase = static_cast<int>(place / per_phase), within = static_cast<int>(place - phase * per_phase);
  const int out = within / 4, row = within / 2 % 2, column = within % 2;
  float total = 0;
  for (int r = first_tap(phase / 2, row); r < end_tap(phase / 2, row); ++r)
    for (int s = first_tap(phase % 2, column); s < end_tap(phase % 2, column); ++s)
      total += as_float(w[((static_cast<int64_t>(out) * 3 + r) * 3 + s) * channels + c]);
  phases[i] = from_float<T>(total);
}

// Blocks along y for the row of y that blockIdx.x names; a thread per vector of channels.
template <class Vector>
__global__ void interleave_kernel(const Vector* phases, Vector* y, int rows, int columns, int vectors) {
  const int64_t row = blockIdx.x;  // of all pictures, which have an even number of rows
  const int i = blockIdx.y * kThreads + threadIdx.x;
  if (i >= columns * vectors) return;
  const int column = i / vectors, v = i - column * vectors;
  const int64_t phase = row % 2 * 2 + column % 2, per_phase = static_cast<int64_t>(rows / 2) * (columns / 2);
  y[row * columns * vectors + i] = phases[(phase * per_phase + row / 2 * (columns / 2) + column / 2) * vectors + v];
}

}  // namespace

void sum_taps(const Tensor& w, const Tensor& phases) {
  CudaStream& stream = stream_for(phases);
  with_float("upsample_conv2d", w.dtype(), [&]<class T>(T) {
    sum_taps_kernel<T><<<blocks_for("upsample_conv2d", phases.numel(), kThreads), kThreads, 0, stream.handle()>>>(
        w.data<T>(), phases.data<T>(), phases.numel(), static_cast<int>(w.dim(3)));
  });
  stream.enqueued("upsample_conv2d");
}

void interleave(const Tensor& phases, const Tensor& y) {
  CudaStream& stream = stream_for(y);
  const int64_t rows = y.dim(0) * y.dim(1), columns = y.dim(2), row_bytes = y.dim(3) * info(y.dtype()).block_bytes;
  const auto run = [&]<class Vector>(Vector) {
    const int64_t vectors = row_bytes / static_cast<int64_t>(sizeof(Vector));
    const dim3 grid(static_cast<unsigned>(rows), blocks_for("upsample_conv2d", columns * vectors, kThreads));
    interleave_kernel<<<grid, kThreads, 0, stream.handle()>>>(phases.data<Vector>(), y.data<Vector>(), static_cast<int>(rows),
                                                              static_cast<int>(columns), static_cast<int>(vectors));
  };
  if (row_bytes % 16 == 0) run(uint4{});
  else run(uint16_t{});
  stream.enqueued("upsample_conv2d");
}

}  // namespace flux2::cuda
