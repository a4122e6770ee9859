#include <algorithm>

#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/layout.cuh"
#include "backend/cuda/kernels/rows.cuh"

// Gradients of layer_norm, rms_norm and modulated_norm. With n the normalised row, r = 1 / its deviation and g = dy times the
// factor that followed n: dx = r · (g − mean(g) − n · mean(g · n)), without mean(g) where no mean was subtracted.
namespace flux2::cuda {

namespace {

constexpr int kThreads = 256;

enum class Norm { Layer, Rms, Modulated };

template <class T, class W>
struct NormGradArguments {
  const T *x, *dy;
  const T* sum;     // added to dx; may be null
  T* dx;            // may be null
  const W* weight;  // Rms: [C]. Modulated: scale, a row per batch
  int64_t weight_stride, rows_per_batch;
  float* inverse;  // [rows] receives r; may be null
  int columns;
  float eps;
};

template <Norm kind>
__device__ inline float factor(float weight) {
  if constexpr (kind == Norm::Layer) return 1.0f;
  else if constexpr (kind == Norm::Rms) return weight;
  else return 1.0f + weight;
}

// Threads of a block whose rows are held by groups of that many. Groups of a warp or less lie side by side in it.
constexpr int block_of(int group) { return group <= 32 ? kThreads : group; }

// kGroup threads hold a row of x and of dy in registers, kChunks vectors of V each. As in norm.cu, a block stays for several rows
// and asks for its next one before it works on the one it has.
template <Norm kind, class T, class W, int V, int kGroup, int kChunks, int kBlocks>
__global__ void __launch_bounds__(block_of(kGroup), kBlocks)
    norm_grad_in_registers(const __grid_constant__ Layout<4> rows, const NormGradArguments<T, W> a) {
  constexpr int kRows = block_of(kGroup) / kGroup;
  const int lane = kRows == 1 ? threadIdx.x : threadIdx.x % kGroup, slot = kRows == 1 ? 0 : threadIdx.x / kGroup;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kRows;
  const auto count = static_cast<float>(a.columns);
  const auto for_each_chunk = [&](const auto& f) {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int column = (chunk * kGroup + lane) * V;
      if (column < a.columns) f(chunk, column);
    }
  };
  struct Row {
    Words<T, V> x[kChunks], dy[kChunks], sum[kChunks];
    int64_t offset[4];
  };
  const auto read = [&](Row& into, int64_t row) {
    rows.offsets(row, into.offset);
    for_each_chunk([&](int chunk, int column) {
      into.x[chunk] = load_words<V>(a.x + into.offset[0] + column);
      into.dy[chunk] = load_words<V>(a.dy + into.offset[1] + column);
      if constexpr (kind == Norm::Modulated)
        into.sum[chunk] = a.sum ? load_words<V>(a.sum + into.offset[3] + column) : Words<T, V>{};
    });
  };
  GroupSums<kGroup, 3> sums;

  Row now, next;
  Words<W, V> weight[kChunks] = {};
  int64_t first = static_cast<int64_t>(blockIdx.x) * kRows, batch_end = 0;
  read(now, min(first + slot, rows.count - 1));
  for (; first < rows.count; first += step) {
    const bool inside = first + slot < rows.count;
    const int64_t row = inside ? first + slot : rows.count - 1;  // a warp adds up together, so no part of it leaves
    if (kind != Norm::Layer && row >= batch_end) {               // before the first row, too
      const int64_t batch = row / a.rows_per_batch;
      batch_end = (batch + 1) * a.rows_per_batch;
      for_each_chunk([&](int chunk, int column) { weight[chunk] = load_words<V>(a.weight + batch * a.weight_stride + column); });
    }
    if (first + step < rows.count) read(next, min(first + step + slot, rows.count - 1));

    float mean[1] = {};
    if constexpr (kind != Norm::Rms) {
      for_each_chunk([&](int chunk, int) {
#pragma unroll
        for (int v = 0; v < V; ++v) mean[0] += now.x[chunk][v];
      });
      sums.add(mean);
      mean[0] /= count;
    }
    float total[3] = {};  // Σ d², Σ g · d and Σ g with d = x − mean
    for_each_chunk([&](int chunk, int) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const float d = now.x[chunk][v] - mean[0], g = now.dy[chunk][v] * factor<kind>(weight[chunk][v]);
        total[0] += d * d;
        total[1] += g * d;
        total[2] += g;
      }
    });
    sums.add(total);
    const float inverse = rsqrtf(total[0] / count + a.eps);
    const float slope = total[1] / count * inverse * inverse;
    const float mean_g = kind == Norm::Rms ? 0.0f : total[2] / count;
    if (inside && a.inverse && lane == 0) a.inverse[row] = inverse;
    if (inside && a.dx)
      for_each_chunk([&](int chunk, int column) {
        store_words(a.dx + now.offset[2] + column, words_of<T, V>([&](int v) {
                      const float d = now.x[chunk][v] - mean[0], g = now.dy[chunk][v] * factor<kind>(weight[chunk][v]);
                      const float dx = inverse * (g - mean_g - d * slope);
                      return kind == Norm::Modulated ? now.sum[chunk][v] + dx : dx;
                    }));
      });
    now = next;
  }
}

// Any width and alignment: a block walks the row three times, from cache after the first.
template <Norm kind, class T, class W>
__global__ void __launch_bounds__(kThreads)
    norm_grad_by_walking(const __grid_constant__ Layout<4> rows, const NormGradArguments<T, W> a) {
  int64_t offset[4];
  rows.offsets(blockIdx.x, offset);
  const T *x = a.x + offset[0], *dy = a.dy + offset[1];
  const W* weight = a.weight + blockIdx.x / a.rows_per_batch * a.weight_stride;
  const auto gradient = [&](int c) {
    W w{};
    if constexpr (kind != Norm::Layer) w = weight[c];
    return as_float(dy[c]) * factor<kind>(as_float(w));
  };
  const auto count = static_cast<float>(a.columns);

  float mean = 0;
  if constexpr (kind != Norm::Rms) {
    for (int c = threadIdx.x; c < a.columns; c += kThreads) mean += as_float(x[c]);
    mean = block_sum<kThreads>(mean) / count;
  }
  float squares = 0, total = 0, product = 0;
  for (int c = threadIdx.x; c < a.columns; c += kThreads) {
    const float d = as_float(x[c]) - mean, g = gradient(c);
    squares += d * d;
    total += g;
    product += g * d;
  }
  const float inverse = rsqrtf(block_sum<kThreads>(squares) / count + a.eps);
  const float mean_g = kind == Norm::Rms ? 0.0f : block_sum<kThreads>(total) / count;
  const float slope = block_sum<kThreads>(product) / count * inverse * inverse;
  if (a.inverse && threadIdx.x == 0) a.inverse[blockIdx.x] = inverse;
  if (!a.dx) return;
  for (int c = threadIdx.x; c < a.columns; c += kThreads) {
    const float dx = inverse * (gradient(c) - mean_g - (as_float(x[c]) - mean) * slope);
    a.dx[offset[2] + c] = from_float<T>(a.sum ? as_float(a.sum[offset[3] + c]) + dx : dx);
  }
}

template <Norm kind, class T, class W>
void launch(const char* op, const Tensor& x, const Tensor& dy, const Tensor& dx, const NormGradArguments<T, W>& a,
            const Tensor* sum = nullptr) {
  CudaStream& stream = stream_for(x);
  const int outer = x.rank() - 1;
  const Tensor& added = sum ? *sum : dx;
  const auto rows = layout_of<4>(x.shape().first(outer), {x.strides().first(outer), dy.strides().first(outer),
                                                          dx.strides().first(outer), added.strides().first(outer)});
  constexpr int V = kVector<T>;
  bool vectors = a.columns % V == 0 && is_aligned(a.weight, sizeof(W) * V) && a.weight_stride % V == 0;
  const Tensor* const all[] = {&x, &dy, &dx, &added};
  for (int n = 0; n < 4; ++n) {
    vectors = vectors && is_aligned(all[n]->raw(), 16);
    for (int axis = 0; axis < rows.rank; ++axis) vectors = vectors && (rows.shape[axis] == 1 || rows.stride[n][axis] % V == 0);
  }
  const auto run = [&]<int kGroup, int kChunks, int kBlocks>() {
    constexpr int kBlock = block_of(kGroup);
    const unsigned blocks = staying_blocks(blocks_for(op, rows.count, kBlock / kGroup), kBlocks);
    norm_grad_in_registers<kind, T, W, V, kGroup, kChunks, kBlocks><<<blocks, kBlock, 0, stream.handle()>>>(rows, a);
  };
  if (vectors && a.columns <= 4 * V) {  // the heads of a small model
    run.template operator()<4, 1, 3>();
  } else if (vectors && a.columns <= 16 * V) {
    run.template operator()<16, 1, 3>();
  } else if (vectors && a.columns <= 32 * V * 2) {
    run.template operator()<32, 2, 2>();
  } else if (vectors && a.columns <= 128 * V * 3) {
    run.template operator()<128, 3, 4>();
  } else if (vectors && a.columns <= 128 * V * 4) {
    run.template operator()<128, 4, 3>();
  } else if (vectors && a.columns <= 256 * V * 3) {
    run.template operator()<256, 3, 2>();
  } else {
    norm_grad_by_walking<kind, T, W><<<blocks_for(op, rows.count, 1), kThreads, 0, stream.handle()>>>(rows, a);
  }
  stream.enqueued(op, {.bytes = traffic({&x, &dy, &dx}) + (sum ? traffic({sum}) : 0)});
}

// partial[slice][c] = Σ dy · x · r over the rows of a slice, blockIdx.y. A thread stays with V columns; `lanes` rows abreast.
template <class T, int V>
__global__ void __launch_bounds__(kThreads) weight_grad_slices(const __grid_constant__ Layout<2> rows, const T* x, const T* dy,
                                                               const float* inverse, float* partial, int64_t slice, int columns) {
  const int first = blockIdx.x * kThreads, width = min(columns / V - first, kThreads);
  const int column = (first + static_cast<int>(threadIdx.x) % width) * V, lane = threadIdx.x / width, lanes = kThreads / width;
  const int64_t begin = blockIdx.y * slice, end = lane < lanes ? min(begin + slice, rows.count) : begin;
  float total[V] = {};
#pragma unroll 4
  for (int64_t row = begin + lane; row < end; row += lanes) {
    int64_t offset[2];
    rows.offsets(row, offset);
    const Pack<T, V> xs = load_pack<V>(x + offset[0] + column), dys = load_pack<V>(dy + offset[1] + column);
    const float r = inverse[row];
#pragma unroll
    for (int v = 0; v < V; ++v) total[v] += as_float(dys.v[v]) * (as_float(xs.v[v]) * r);
  }
  __shared__ float shared[kThreads * V];
#pragma unroll
  for (int v = 0; v < V; ++v) shared[threadIdx.x * V + v] = total[v];
  __syncthreads();
  const int block_columns = width * V;
  for (int c = threadIdx.x; c < block_columns; c += kThreads) {
    float sum = shared[c];
    for (int other = 1; other < lanes; ++other) sum += shared[other * block_columns + c];
    partial[static_cast<int64_t>(blockIdx.y) * columns + first * V + c] = sum;
  }
}

// dweight[c] = Σ dy · n over all rows, slice by slice and then over the slices: always the same order.
void rms_weight_grad(const RmsNormGradArgs& args, const float* inverse) {
  const Tensor &x = args.x, &dy = args.dy;
  CudaStream& stream = stream_for(x);
  const int outer = x.rank() - 1;
  const auto rows = layout_of<2>(x.shape().first(outer), {x.strides().first(outer), dy.strides().first(outer)});
  const int64_t columns = x.dim(-1);
  with_float("rms_norm_grad", x.dtype(), [&]<class T>(T) {
    const auto run = [&]<int V>() {
      const int64_t vectors = columns / V, lanes = kThreads / std::min<int64_t>(vectors, kThreads);
      const int64_t slice = std::max<int64_t>(ceil_div(rows.count, 512), lanes * 8), slices = ceil_div(rows.count, slice);
      const Tensor partial = Tensor::like(x, DType::F32, {slices, columns}), total = Tensor::like(x, DType::F32, {1, columns});
      const dim3 grid(blocks_for("rms_norm_grad", vectors, kThreads), static_cast<unsigned>(slices));
      weight_grad_slices<T, V><<<grid, kThreads, 0, stream.handle()>>>(rows, x.data<T>(), dy.data<T>(), inverse,
                                                                       partial.data<float>(), slice, static_cast<int>(columns));
      stream.enqueued("rms_norm_grad", {.bytes = traffic({&x, &dy})});
      sum({partial, total});
      args.dweight->copy_from(total.reshaped({columns}));
    };
    constexpr int V = kVector<T>;
    bool aligned = columns % V == 0 && is_aligned(x.raw(), 16) && is_aligned(dy.raw(), 16);
    for (int n = 0; n < 2; ++n)
      for (int axis = 0; axis < rows.rank; ++axis) aligned = aligned && (rows.shape[axis] == 1 || rows.stride[n][axis] % V == 0);
    if (aligned) run.template operator()<V>();
    else run.template operator()<1>();
  });
}

}  // namespace

void layer_norm_grad(const LayerNormGradArgs& args) {
  if (args.dx.numel() == 0) return;
  with_float("layer_norm_grad", args.x.dtype(), [&]<class T>(T) {
    const NormGradArguments<T, T> a{args.x.data<T>(),  args.dy.data<T>(), nullptr,
                                    args.dx.data<T>(), nullptr,           0,
                                    INT64_MAX,         nullptr,           static_cast<int>(args.x.dim(-1)),
                                    args.eps};
    launch<Norm::Layer>("layer_norm_grad", args.x, args.dy, args.dx, a);
  });
}

void modulated_norm_grad(const ModulatedNormGradArgs& args) {
  if (args.dx.numel() == 0) return;
  const int64_t columns = args.x.dim(-1), rows_per_batch = args.x.numel() / (args.x.dim(0) * columns);
  const int64_t scale_stride = args.scale.dim(0) == 1 ? 0 : args.scale.stride(0);
  with_float("modulated_norm_grad", args.x.dtype(), [&]<class T>(T) {
    const NormGradArguments<T, T> a{args.x.data<T>(),
                                    args.dy.data<T>(),
                                    args.sum ? args.sum->data<T>() : nullptr,
                                    args.dx.data<T>(),
                                    args.scale.data<T>(),
                                    scale_stride,
                                    rows_per_batch,
                                    nullptr,
                                    static_cast<int>(columns),
                                    args.eps};
    launch<Norm::Modulated>("modulated_norm_grad", args.x, args.dy, args.dx, a, args.sum);
  });
}

void rms_norm_grad(const RmsNormGradArgs& args) {
  if (args.x.numel() == 0) {
    if (args.dweight) args.dweight->fill(0.0);
    return;
  }
  CudaStream& stream = stream_for(args.x);
  const int64_t columns = args.x.dim(-1);
  const Tensor weight = weight_vector(args.weight, args.x.dtype());
  std::shared_ptr<void> inverse;
  if (args.dweight) inverse = stream.allocate(static_cast<size_t>(args.x.numel() / columns) * sizeof(float));
  with_float_and_weight("rms_norm_grad", args.x.dtype(), weight.dtype(), [&]<class T, class W>(T, W) {
    const NormGradArguments<T, W> a{args.x.data<T>(),
                                    args.dy.data<T>(),
                                    nullptr,
                                    args.dx ? args.dx->data<T>() : nullptr,
                                    weight.data<W>(),
                                    0,
                                    INT64_MAX,
                                    static_cast<float*>(inverse.get()),
                                    static_cast<int>(columns),
                                    args.eps};
    launch<Norm::Rms>("rms_norm_grad", args.x, args.dy, args.dx ? *args.dx : args.x, a);
  });
  if (args.dweight) rms_weight_grad(args, static_cast<const float*>(inverse.get()));
}

}  // namespace flux2::cuda
