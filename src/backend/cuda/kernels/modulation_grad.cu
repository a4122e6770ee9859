#include <algorithm>

#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/kernels.h"

// The gradients of modulation vectors: sums over the tokens of each sample. They read x and dy as they are stored, once or twice,
// instead of making copies in F32 for a norm, a product and a sum.
namespace flux2::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kColumnVectors = 32;  // of a block
constexpr int kRowsAbreast = kThreads / kColumnVectors;

// Products of two BF16 are exact in F32, and their sums run in F32 over the few rows of a thread; F32 needs F64.
template <class T>
using Sum = std::conditional_t<std::is_same_v<T, float>, double, float>;

struct RowStatistics {
  float mean, inverse;  // of the deviation
};

// A warp per row.
template <class T, int V>
__global__ void __launch_bounds__(kThreads) row_statistics(const T* x, int64_t rows, int64_t rows_per_batch, int64_t x_batch,
                                                           int64_t x_row, int columns, float eps, RowStatistics* statistics) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;
  const T* from = x + row / rows_per_batch * x_batch + row % rows_per_batch * x_row;
  float total = 0;
  for (int column = lane * V; column < columns; column += 32 * V) {
    const Pack<T, V> values = load_pack<V>(from + column);
#pragma unroll
    for (int v = 0; v < V; ++v) total += as_float(values.v[v]);
  }
  const float mean = warp_sum(total) / static_cast<float>(columns);
  float squares = 0;
  for (int column = lane * V; column < columns; column += 32 * V) {  // from the cache
    const Pack<T, V> values = load_pack<V>(from + column);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const float d = as_float(values.v[v]) - mean;
      squares += d * d;
    }
  }
  const float inverse = rsqrtf(warp_sum(squares) / static_cast<float>(columns) + eps);
  if (lane == 0) statistics[row] = {mean, inverse};
}

template <class T>
struct SumArguments {
  const T *dy, *x;
  const RowStatistics* statistics;  // null: x as it is
  int64_t dy_batch, dy_row, x_batch, x_row;
  int64_t rows, slice_rows;  // of a sample
  int columns;
  T *sums, *products;                       // [B, columns]; sums may be null
  double *partial_sums, *partial_products;  // with several slices: [slice][B, columns]
};

// Block (columns, sample, slice): a thread stays with V columns, kRowsAbreast rows are read side by side.
template <class T, int V>
__global__ void __launch_bounds__(kThreads) sum_rows(const __grid_constant__ SumArguments<T> a) {
  const int vector = threadIdx.x % kColumnVectors, lane = threadIdx.x / kColumnVectors;
  const int column = (static_cast<int>(blockIdx.x) * kColumnVectors + vector) * V;
  const int64_t begin = blockIdx.z * a.slice_rows, end = column < a.columns ? min(begin + a.slice_rows, a.rows) : begin;
  const T* dy = a.dy + blockIdx.y * a.dy_batch + column;
  const T* x = a.x + blockIdx.y * a.x_batch + column;
  const RowStatistics* statistics = a.statistics ? a.statistics + blockIdx.y * a.rows : nullptr;
  Sum<T> sum[V] = {}, product[V] = {};
#pragma unroll 4
  for (int64_t row = begin + lane; row < end; row += kRowsAbreast) {
    const Pack<T, V> d = load_pack<V>(dy + row * a.dy_row), values = load_pack<V>(x + row * a.x_row);
    const RowStatistics s = statistics ? statistics[row] : RowStatistics{0, 1};
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const Sum<T> gradient = as_float(d.v[v]);
      sum[v] += gradient;
      product[v] += gradient * static_cast<Sum<T>>((as_float(values.v[v]) - s.mean) * s.inverse);
    }
  }
  __shared__ double shared[2][kRowsAbreast][kColumnVectors * V];
#pragma unroll
  for (int v = 0; v < V; ++v) {
    shared[0][lane][vector * V + v] = sum[v];
    shared[1][lane][vector * V + v] = product[v];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 2 * kColumnVectors * V; i += kThreads) {
    const int which = i / (kColumnVectors * V), c = i % (kColumnVectors * V);
    const int at = static_cast<int>(blockIdx.x) * kColumnVectors * V + c;
    if (at >= a.columns || (which == 0 && !a.sums)) continue;
    double total = 0;
#pragma unroll
    for (int other = 0; other < kRowsAbreast; ++other) total += shared[which][other][c];
    const int64_t place = static_cast<int64_t>(blockIdx.y) * a.columns + at;
    if (gridDim.z == 1) {
      (which == 0 ? a.sums : a.products)[place] = from_float<T>(static_cast<float>(total));
    } else {
      (which == 0 ? a.partial_sums : a.partial_products)[static_cast<int64_t>(blockIdx.z) * gridDim.y * a.columns + place] =
          total;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) add_slices(const double* partial, int64_t count, int slices, T* y) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  double total = 0;
  for (int slice = 0; slice < slices; ++slice) total += partial[slice * count + i];
  y[i] = from_float<T>(static_cast<float>(total));
}

template <class T, int V>
void launch(const ModulationGradArgs& args, const Tensor& dy, const Tensor& x) {
  CudaStream& stream = stream_for(dy);
  const int64_t batch = dy.dim(0), rows = dy.dim(1), columns = dy.dim(2);
  std::shared_ptr<void> statistics;
  if (args.normed) {
    statistics = stream.allocate(static_cast<size_t>(batch * rows) * sizeof(RowStatistics));
    row_statistics<T, V><<<blocks_for("modulation_grad", batch * rows, kThreads / 32), kThreads, 0, stream.handle()>>>(
        x.data<T>(), batch * rows, rows, x.stride(0), x.stride(1), static_cast<int>(columns), args.eps,
        static_cast<RowStatistics*>(statistics.get()));
    stream.enqueued("modulation_grad", {.bytes = traffic({&x})});
  }
  const unsigned across = blocks_for("modulation_grad", columns, kColumnVectors * V);
  check(batch <= 65535, "modulation_grad: {} samples", batch);
  // Enough blocks for a large GPU, none with fewer rows than keep its loads in flight.
  constexpr int64_t kBlocks = 528, kLeastRows = 8 * kRowsAbreast;
  const int64_t slices = std::clamp<int64_t>(std::min(kBlocks / (across * batch), rows / kLeastRows), 1, 256);
  const int64_t count = batch * columns;
  const auto partial = slices > 1 ? stream.allocate(static_cast<size_t>(2 * slices * count) * sizeof(double)) : nullptr;
  const SumArguments<T> a{.dy = dy.data<T>(),
                          .x = x.data<T>(),
                          .statistics = static_cast<const RowStatistics*>(statistics.get()),
                          .dy_batch = dy.stride(0),
                          .dy_row = dy.stride(1),
                          .x_batch = x.stride(0),
                          .x_row = x.stride(1),
                          .rows = rows,
                          .slice_rows = ceil_div(rows, slices),
                          .columns = static_cast<int>(columns),
                          .sums = args.sums ? args.sums->data<T>() : nullptr,
                          .products = args.products.data<T>(),
                          .partial_sums = static_cast<double*>(partial.get()),
                          .partial_products = static_cast<double*>(partial.get()) + slices * count};
  sum_rows<T, V><<<dim3(across, static_cast<unsigned>(batch), static_cast<unsigned>(slices)), kThreads, 0, stream.handle()>>>(a);
  stream.enqueued("modulation_grad", {.bytes = traffic({&dy, &x})});
  if (slices == 1) return;
  const auto add = [&](const double* from, T* y) {
    add_slices<T><<<blocks_for("modulation_grad", count, kThreads), kThreads, 0, stream.handle()>>>(from, count,
                                                                                                    static_cast<int>(slices), y);
    stream.enqueued("modulation_grad");
  };
  if (a.sums) add(a.partial_sums, a.sums);
  add(a.partial_products, a.products);
}

// Rows of contiguous values that begin on the boundaries of vectors.
bool in_vectors(const Tensor& t, int v) {
  if (!is_aligned(t.raw(), 16) || t.stride(2) != 1) return false;
  return (t.dim(0) == 1 || t.stride(0) % v == 0) && (t.dim(1) == 1 || t.stride(1) % v == 0) && t.dim(2) % v == 0;
}

}  // namespace

void modulation_grad(const ModulationGradArgs& args) {
  if (args.products.numel() == 0) return;
  const auto rows_of = [](const Tensor& t) { return t.dim(2) <= 1 || t.stride(2) == 1 ? t : t.cloned(); };
  const Tensor dy = rows_of(args.dy), x = rows_of(args.x);
  with_float("modulation_grad", dy.dtype(), [&]<class T>(T) {
    constexpr int V = kVector<T>;
    if (in_vectors(dy, V) && in_vectors(x, V)) launch<T, V>(args, dy, x);
    else launch<T, 1>(args, dy, x);
  });
}

}  // namespace flux2::cuda
