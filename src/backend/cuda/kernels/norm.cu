#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/eight_bits.cuh"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/layout.cuh"

// layer_norm, rms_norm and modulated_norm: the same walk over rows with another last line. gated_add_norm is the last of them
// on a sum that it also stores. All but the first may end in 8 bits: the row is then in registers when its largest value is
// known.
namespace flux2::cuda {

namespace {

constexpr int kThreads = 256;
// Enough rows to give every scheduler of a large GPU several: then a warp per row, which never waits for other warps.
constexpr int64_t kManyRows = 1024;

enum class Norm { Layer, Rms, Modulated, GatedModulated };

constexpr bool is_modulated(Norm kind) { return kind == Norm::Modulated || kind == Norm::GatedModulated; }

// O is what is written: T, or E4m3 or int8_t with a scale per row.
template <class T, class W, class O = T>
struct NormArguments {
  const T* x;
  O* y;
  const W* weight;                      // Rms: [C]. Modulated: scale, a row per batch
  const W* shift;                       // Modulated only
  int64_t weight_stride, shift_stride;  // from one batch to the next
  int64_t rows_per_batch;
  int columns;
  float eps;
  // GatedModulated: the norm is of sum = x + gate · z. z and sum have rows of the same strides as x and y.
  const T* z = nullptr;
  const W* gate = nullptr;
  T* sum = nullptr;
  int64_t gate_stride = 0;
  float* scales = nullptr;  // of 8 bits: [rows]
};

template <class T, class W, int V>
__device__ inline Pack<T, V> gated_sum(const Pack<T, V>& x, const Pack<W, V>& gate, const Pack<T, V>& z) {
  Pack<T, V> sum;
#pragma unroll
  for (int v = 0; v < V; ++v) sum.v[v] = from_float<T>(as_float(x.v[v]) + as_float(gate.v[v]) * as_float(z.v[v]));
  return sum;
}

template <int kGroup>
__device__ inline float group_sum(float v) {
  if constexpr (kGroup == 32) return warp_sum(v);
  else return block_sum<kGroup>(v);
}

template <Norm kind, class W>
__device__ inline float finish(float normal, W weight, W shift) {
  if constexpr (kind == Norm::Layer) return normal;
  else if constexpr (kind == Norm::Rms) return normal * as_float(weight);
  else return (1.0f + as_float(weight)) * normal + as_float(shift);
}

// Threads of a block whose rows are held by groups of that many: warps need not wait for each other, so several share a block.
constexpr int block_of(int group) { return group == 32 ? kThreads : group; }

// kGroup threads hold a row in registers, kChunks vectors of V each. columns is a multiple of V, at most kGroup · V · kChunks.
template <Norm kind, class T, class W, class O, int V, int kGroup, int kChunks>
__global__ void __launch_bounds__(block_of(kGroup))
    norm_in_registers(const __grid_constant__ Layout<2> rows, const NormArguments<T, W, O> a) {
  constexpr int kRows = block_of(kGroup) / kGroup;
  const int lane = threadIdx.x % kGroup;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kGroup;
  if (row >= rows.count) return;  // a whole group leaves
  int64_t offset[2];
  rows.offsets(row, offset);
  const T* x = a.x + offset[0];
  O* y = a.y + offset[1];

  Pack<T, V> in[kChunks];  // kept as they are stored: half the registers of floats in BF16
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const int column = (chunk * kGroup + lane) * V;
    if (column < a.columns) in[chunk] = load_pack<V>(x + column);
  }
  const int64_t batch = row / a.rows_per_batch;
  if constexpr (kind == Norm::GatedModulated) {
    Pack<T, V> z[kChunks];
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int column = (chunk * kGroup + lane) * V;
      if (column < a.columns) z[chunk] = load_pack<V>(a.z + offset[0] + column);
    }
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int column = (chunk * kGroup + lane) * V;
      if (column >= a.columns) continue;
      in[chunk] = gated_sum<T, W, V>(in[chunk], load_pack<V>(a.gate + batch * a.gate_stride + column), z[chunk]);
      store_pack(a.sum + offset[1] + column, in[chunk]);
    }
  }
  float mean = 0;
  if constexpr (kind != Norm::Rms) {
    float total = 0;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      if ((chunk * kGroup + lane) * V >= a.columns) continue;
#pragma unroll
      for (int v = 0; v < V; ++v) total += as_float(in[chunk].v[v]);
    }
    mean = group_sum<kGroup>(total) / static_cast<float>(a.columns);
  }
  float squares = 0;
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    if ((chunk * kGroup + lane) * V >= a.columns) continue;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const float d = as_float(in[chunk].v[v]) - mean;
      squares += d * d;
    }
  }
  const float inverse = rsqrtf(group_sum<kGroup>(squares) / static_cast<float>(a.columns) + a.eps);

#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const int column = (chunk * kGroup + lane) * V;
    if (column >= a.columns) continue;
    Pack<W, V> weight{}, shift{};
    if constexpr (kind != Norm::Layer) weight = load_pack<V>(a.weight + batch * a.weight_stride + column);
    if constexpr (is_modulated(kind)) shift = load_pack<V>(a.shift + batch * a.shift_stride + column);
    Pack<T, V> out;
#pragma unroll
    for (int v = 0; v < V; ++v)
      out.v[v] = from_float<T>(finish<kind>((as_float(in[chunk].v[v]) - mean) * inverse, weight.v[v], shift.v[v]));
    if constexpr (std::is_same_v<O, T>) store_pack(y + column, out);
    else in[chunk] = out;
  }
  if constexpr (!std::is_same_v<O, T>) {
    Largest largest;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk)
      if ((chunk * kGroup + lane) * V < a.columns) largest.see(in[chunk]);
    const RowScale<O> scale(largest.among<kGroup>());
    if (lane == 0) a.scales[row] = scale.factor;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int column = (chunk * kGroup + lane) * V;
      if (column < a.columns) store_pack(y + column, scale.round(in[chunk]));
    }
  }
}

// Any width and alignment: a block walks the row three times, from cache after the first.
template <Norm kind, class T, class W>
__global__ void __launch_bounds__(kThreads) norm_by_walking(const __grid_constant__ Layout<2> rows, const NormArguments<T, W> a) {
  int64_t offset[2];
  rows.offsets(blockIdx.x, offset);
  const T* x = a.x + offset[0];
  T* y = a.y + offset[1];

  float mean = 0;
  if constexpr (kind != Norm::Rms) {
    float total = 0;
    for (int c = threadIdx.x; c < a.columns; c += kThreads) total += as_float(x[c]);
    mean = block_sum<kThreads>(total) / static_cast<float>(a.columns);
  }
  float squares = 0;
  for (int c = threadIdx.x; c < a.columns; c += kThreads) {
    const float d = as_float(x[c]) - mean;
    squares += d * d;
  }
  const float inverse = rsqrtf(block_sum<kThreads>(squares) / static_cast<float>(a.columns) + a.eps);

  const int64_t batch = blockIdx.x / a.rows_per_batch;
  for (int c = threadIdx.x; c < a.columns; c += kThreads) {
    W weight{}, shift{};
    if constexpr (kind != Norm::Layer) weight = a.weight[batch * a.weight_stride + c];
    if constexpr (kind == Norm::Modulated) shift = a.shift[batch * a.shift_stride + c];
    y[c] = from_float<T>(finish<kind>((as_float(x[c]) - mean) * inverse, weight, shift));
  }
}

// Whether it was enqueued: a gated sum and 8 bits are only made in registers.
template <Norm kind, class T, class W, class O>
bool launch(const char* op, const Tensor& x, const Tensor& y, const NormArguments<T, W, O>& a) {
  CudaStream& stream = stream_for(y);
  const int outer = x.rank() - 1;
  const auto rows = layout_of<2>(x.shape().first(outer), {x.strides().first(outer), y.strides().first(outer)});

  constexpr int V = kVector<T>;
  const auto starts_aligned = [&](int n, const void* data) {
    if (!is_aligned(data, 16)) return false;
    for (int axis = 0; axis < rows.rank; ++axis)
      if (rows.shape[axis] > 1 && rows.stride[n][axis] % V != 0) return false;
    return true;
  };
  const bool vectors = a.columns % V == 0 && starts_aligned(0, a.x) && starts_aligned(1, a.y) &&
                       is_aligned(a.weight, sizeof(W) * V) && a.weight_stride % V == 0 && is_aligned(a.shift, sizeof(W) * V) &&
                       a.shift_stride % V == 0 && is_aligned(a.z, 16) && is_aligned(a.sum, 16) &&
                       is_aligned(a.gate, sizeof(W) * V) && a.gate_stride % V == 0;
  const auto run = [&]<int kGroup, int kChunks>() {
    constexpr int kBlock = block_of(kGroup);
    norm_in_registers<kind, T, W, O, V, kGroup, kChunks>
        <<<blocks_for(op, rows.count, kBlock / kGroup), kBlock, 0, stream.handle()>>>(rows, a);
  };
  if constexpr (kind == Norm::GatedModulated) {  // two inputs: more threads a row, or there are no registers left
    if (!vectors || a.columns > kThreads * V * 4) return false;
    if (a.columns <= 32 * V * 2) run.template operator()<32, 2>();
    else if (a.columns <= 128 * V * 3) run.template operator()<128, 3>();
    else if (a.columns <= 128 * V * 4) run.template operator()<128, 4>();
    else run.template operator()<kThreads, 4>();
  } else {
    const bool many_halves = sizeof(T) == 2 && rows.count >= kManyRows;
    if (vectors && a.columns <= 32 * V * 2) run.template operator()<32, 2>();
    else if (vectors && many_halves && a.columns > 32 * V * 8 && a.columns <= 32 * V * 12) run.template operator()<32, 12>();
    else if (vectors && many_halves && a.columns > 32 * V * 12 && a.columns <= 32 * V * 16) run.template operator()<32, 16>();
    else if (vectors && a.columns <= kThreads * V * 4) run.template operator()<kThreads, 4>();
    else if constexpr (std::is_same_v<O, T>)
      norm_by_walking<kind, T, W><<<blocks_for(op, rows.count, 1), kThreads, 0, stream.handle()>>>(rows, a);
    else return false;
  }
  stream.enqueued(op, {.bytes = traffic({&x, &y}) + (kind == Norm::GatedModulated ? 2 * traffic({&x}) : 0.0)});
  return true;
}

// Calls f(O{}) with what y is stored as beside activations T.
template <class T, class F>
bool with_result(const Tensor& y, F&& f) {
  if constexpr (std::is_same_v<T, Bf16>) {
    if (y.dtype() == DType::F8_E4M3) return f(E4m3{});
    if (y.dtype() == DType::I8) return f(int8_t{});
  }
  return f(T{});
}

float* scales_of(const Tensor& y) { return y.scales().defined() ? y.scales().data<float>() : nullptr; }

// What the norm would have written in the dtype of x, then rounded: for rows that do not fit into registers.
template <class F>
void round_after(const Tensor& x, const Tensor& y, F&& norm_into) {
  const Tensor plain = Tensor::like(x);
  norm_into(plain);
  const Shape rows{x.numel() / x.dim(-1), x.dim(-1)};
  quantise({plain.reshaped(rows), y.reshaped(rows)});
}

// From one batch to the next in shift or scale [B, 1, C].
int64_t batch_stride(const Tensor& t) { return t.dim(0) == 1 ? 0 : t.stride(0); }

}  // namespace

void layer_norm(const LayerNormArgs& args) {
  if (args.y.numel() == 0) return;
  with_float("layer_norm", args.x.dtype(), [&]<class T>(T) {
    const NormArguments<T, T> a{
        args.x.data<T>(), args.y.data<T>(), nullptr, nullptr, 0, 0, INT64_MAX, static_cast<int>(args.x.dim(-1)), args.eps};
    launch<Norm::Layer>("layer_norm", args.x, args.y, a);
  });
}

void rms_norm(const RmsNormArgs& args) {
  const Tensor &x = args.x, &y = args.y;
  if (y.numel() == 0) return;
  const Tensor weight = weight_vector(args.weight, x.dtype());
  bool done = false;
  with_float_and_weight("rms_norm", x.dtype(), weight.dtype(), [&]<class T, class W>(T, W) {
    done = with_result<T>(y, [&]<class O>(O) {
      const NormArguments<T, W, O> a{.x = x.data<T>(),
                                     .y = y.data<O>(),
                                     .weight = weight.data<W>(),
                                     .shift = nullptr,
                                     .weight_stride = 0,
                                     .shift_stride = 0,
                                     .rows_per_batch = INT64_MAX,
                                     .columns = static_cast<int>(x.dim(-1)),
                                     .eps = args.eps,
                                     .scales = scales_of(y)};
      return launch<Norm::Rms>("rms_norm", x, y, a);
    });
  });
  if (!done) round_after(x, y, [&](const Tensor& plain) { rms_norm({x, args.weight, plain, args.eps}); });
}

void modulated_norm(const ModulatedNormArgs& args) {
  const Tensor &x = args.x, &y = args.y;
  if (y.numel() == 0) return;
  bool done = false;
  with_float("modulated_norm", x.dtype(), [&]<class T>(T) {
    done = with_result<T>(y, [&]<class O>(O) {
      const NormArguments<T, T, O> a{.x = x.data<T>(),
                                     .y = y.data<O>(),
                                     .weight = args.scale.data<T>(),
                                     .shift = args.shift.data<T>(),
                                     .weight_stride = batch_stride(args.scale),
                                     .shift_stride = batch_stride(args.shift),
                                     .rows_per_batch = x.numel() / (x.dim(0) * x.dim(-1)),
                                     .columns = static_cast<int>(x.dim(-1)),
                                     .eps = args.eps,
                                     .scales = scales_of(y)};
      return launch<Norm::Modulated>("modulated_norm", x, y, a);
    });
  });
  if (!done) round_after(x, y, [&](const Tensor& plain) { modulated_norm({x, args.shift, args.scale, plain, args.eps}); });
}

void gated_add_norm(const GatedAddNormArgs& args) {
  const Tensor &x = args.x, &y = args.y;
  if (y.numel() == 0) return;
  bool done = false;
  if (args.z.strides() == x.strides() && args.sum.strides() == y.strides())
    with_float("gated_add_norm", x.dtype(), [&]<class T>(T) {
      done = with_result<T>(y, [&]<class O>(O) {
        const NormArguments<T, T, O> a{.x = x.data<T>(),
                                       .y = y.data<O>(),
                                       .weight = args.scale.data<T>(),
                                       .shift = args.shift.data<T>(),
                                       .weight_stride = batch_stride(args.scale),
                                       .shift_stride = batch_stride(args.shift),
                                       .rows_per_batch = x.dim(1),
                                       .columns = static_cast<int>(x.dim(2)),
                                       .eps = args.eps,
                                       .z = args.z.data<T>(),
                                       .gate = args.gate.data<T>(),
                                       .sum = args.sum.data<T>(),
                                       .gate_stride = batch_stride(args.gate),
                                       .scales = scales_of(y)};
        return launch<Norm::GatedModulated>("gated_add_norm", x, y, a);
      });
    });
  if (done) return;
  gated_add({x, args.gate, args.z, args.sum});
  modulated_norm({args.sum, args.shift, args.scale, y, args.eps});
}

}  // namespace flux2::cuda
