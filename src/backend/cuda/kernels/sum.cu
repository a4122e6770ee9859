#include <algorithm>

#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/layout.cuh"

namespace flux2::cuda {

namespace {

constexpr int kThreads = 256;

// Sums run in F64: they are bound by memory, and a loss over millions of terms stays exact to the last bits of F32.

// A thread per sum: neighbours read neighbours when the innermost axis is kept.
template <class T>
__global__ void sum_by_thread(const __grid_constant__ Layout<2> kept, const __grid_constant__ Layout<1> summed, const T* x,
                              T* y) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= kept.count) return;
  int64_t base[2], step[1];
  kept.offsets(i, base);
  double total = 0;
  for (int64_t j = 0; j < summed.count; ++j) {
    summed.offsets(j, step);
    total += as_float(x[base[0] + step[0]]);
  }
  y[base[1]] = from_float<T>(static_cast<float>(total));
}

// The same for few but long sums: a thread per sum and slice of its terms, partial[sum][slice].
template <class T>
__global__ void sum_by_thread_in_slices(const __grid_constant__ Layout<2> kept, const __grid_constant__ Layout<1> summed,
                                        const T* x, double* partial, int64_t slice_terms) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= kept.count) return;
  int64_t base[2], step[1];
  kept.offsets(i, base);
  const int64_t begin = blockIdx.y * slice_terms, end = min(begin + slice_terms, summed.count);
  double total = 0;
  for (int64_t j = begin; j < end; ++j) {
    summed.offsets(j, step);
    total += as_float(x[base[0] + step[0]]);
  }
  partial[i * gridDim.y + blockIdx.y] = total;
}

// A block per sum and slice of its terms: partial[sum][slice].
template <class T>
__global__ void sum_by_block(const __grid_constant__ Layout<2> kept, const __grid_constant__ Layout<1> summed, const T* x,
                             double* partial, int64_t slice_terms) {
  int64_t base[2], step[1];
  kept.offsets(blockIdx.x, base);
  const int64_t begin = blockIdx.y * slice_terms;
  const int64_t end = min(begin + slice_terms, summed.count);
  double total = 0;
  for (int64_t j = begin + threadIdx.x; j < end; j += kThreads) {
    summed.offsets(j, step);
    total += as_float(x[base[0] + step[0]]);
  }
  total = block_sum<kThreads>(total);
  if (threadIdx.x == 0) partial[static_cast<int64_t>(blockIdx.x) * gridDim.y + blockIdx.y] = total;
}

// Sums of the columns of a matrix: a thread stays with V columns, `lanes` rows abreast; partial[column][slice].
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    sum_columns(const T* x, int64_t rows, int64_t stride, int columns, double* partial, int64_t slice_rows) {
  const int first = blockIdx.x * kThreads, width = min(columns / V - first, kThreads);
  const int column = (first + static_cast<int>(threadIdx.x) % width) * V, lane = threadIdx.x / width, lanes = kThreads / width;
  const int64_t begin = blockIdx.y * slice_rows, end = lane < lanes ? min(begin + slice_rows, rows) : begin;
  double total[V] = {};
#pragma unroll 4
  for (int64_t row = begin + lane; row < end; row += lanes) {
    const Pack<T, V> xs = load_pack<V>(x + row * stride + column);
#pragma unroll
    for (int v = 0; v < V; ++v) total[v] += as_float(xs.v[v]);
  }
  __shared__ double shared[kThreads * V];
#pragma unroll
  for (int v = 0; v < V; ++v) shared[threadIdx.x * V + v] = total[v];
  __syncthreads();
  const int block_columns = width * V;
  for (int c = threadIdx.x; c < block_columns; c += kThreads) {
    double sum = shared[c];
    for (int other = 1; other < lanes; ++other) sum += shared[other * block_columns + c];
    partial[static_cast<int64_t>(first * V + c) * gridDim.y + blockIdx.y] = sum;
  }
}

// A warp adds the slices of a sum.
template <class T>
__global__ void sum_slices(const __grid_constant__ Layout<2> kept, const double* partial, int slices, T* y) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / 32;
  if (i >= kept.count) return;
  double total = 0;
  for (int s = threadIdx.x % 32; s < slices; s += 32) total += partial[i * slices + s];
  total = warp_sum(total);
  if (threadIdx.x % 32 != 0) return;
  int64_t base[2];
  kept.offsets(i, base);
  y[base[1]] = from_float<T>(static_cast<float>(total));
}

}  // namespace

void sum(const SumArgs& args) {
  const Tensor &x = args.x, &y = args.y;
  if (y.numel() == 0) return;
  CudaStream& stream = stream_for(y);

  Shape summed_shape = x.shape();
  for (int axis = 0; axis < x.rank(); ++axis)
    if (y.dim(axis) == x.dim(axis)) summed_shape[axis] = 1;
  const auto kept = layout_of<2>(y.shape(), {x.strides(), y.strides()});
  const auto summed = layout_of<1>(summed_shape, {x.strides()});

  // Few sums, or sums along the innermost axis, are split among the threads of blocks. Neighbouring sums stay with
  // neighbouring threads, so that they read whole lines.
  constexpr int64_t kEnoughThreads = 16384, kWholeLine = 64;
  const bool innermost_kept = kept.stride[0][kept.rank - 1] == 1;
  const bool by_thread = summed.count <= 32 || (kept.count >= kEnoughThreads && innermost_kept);
  const unsigned blocks = blocks_for("sum", kept.count, kThreads);
  with_float("sum", x.dtype(), [&]<class T>(T) {
    if (by_thread) {
      sum_by_thread<T><<<blocks, kThreads, 0, stream.handle()>>>(kept, summed, x.data<T>(), y.data<T>());
      return;
    }
    const auto add_slices = [&](const std::shared_ptr<void>& partial, int64_t slices) {
      stream.enqueued("sum");
      sum_slices<T><<<blocks_for("sum", kept.count, kThreads / 32), kThreads, 0, stream.handle()>>>(
          kept, static_cast<const double*>(partial.get()), static_cast<int>(slices), y.data<T>());
    };
    if (kept.rank == 1 && innermost_kept && summed.rank == 1) {
      const int64_t stride = summed.stride[0][0];
      const auto columns = [&]<int V>() {
        const int64_t vectors = kept.count / V, lanes = kThreads / std::min<int64_t>(vectors, kThreads);
        const unsigned across = blocks_for("sum", vectors, kThreads);
        const int64_t slices = std::clamp<int64_t>(summed.count / (lanes * 8), 1, ceil_div(512, across));
        const int64_t slice_rows = ceil_div(summed.count, slices);
        const auto partial = stream.allocate(static_cast<size_t>(kept.count * slices) * sizeof(double));
        sum_columns<T, V><<<dim3(across, static_cast<unsigned>(slices)), kThreads, 0, stream.handle()>>>(
            x.data<T>(), summed.count, stride, static_cast<int>(kept.count), static_cast<double*>(partial.get()), slice_rows);
        add_slices(partial, slices);
      };
      constexpr int V = kVector<T>;
      if (kept.count % V == 0 && stride % V == 0 && is_aligned(x.raw(), 16)) columns.template operator()<V>();
      else columns.template operator()<1>();
      return;
    }
    const bool neighbours = innermost_kept && kept.count >= kWholeLine;
    const int64_t wanted = neighbours ? std::min(4 * kEnoughThreads / kept.count, summed.count / 16)
                                      : std::min(1024 / kept.count, summed.count / (8 * kThreads));
    const int64_t slices = std::clamp<int64_t>(wanted, 1, 1024), slice_terms = ceil_div(summed.count, slices);
    const auto partial = stream.allocate(static_cast<size_t>(kept.count * slices) * sizeof(double));
    const dim3 grid(neighbours ? blocks : blocks_for("sum", kept.count, 1), static_cast<unsigned>(slices));
    const auto kernel = neighbours ? sum_by_thread_in_slices<T> : sum_by_block<T>;
    kernel<<<grid, kThreads, 0, stream.handle()>>>(kept, summed, x.data<T>(), static_cast<double*>(partial.get()), slice_terms);
    add_slices(partial, slices);
  });
  stream.enqueued("sum");
}

// dx [B, H, 1, W, 1, C] sums dy seen as [B, H, 2, W, 2, C].
void upsample_grad(const UpsampleGradArgs& args) {
  const Shape& s = args.dx.shape();
  sum({args.dy.reshaped({s[0], s[1], 2, s[2], 2, s[3]}), args.dx.reshaped({s[0], s[1], 1, s[2], 1, s[3]})});
}

}  // namespace flux2::cuda
