#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/eight_bits.cuh"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/layout.cuh"
#include "backend/cuda/kernels/rows.cuh"

// layer_norm, rms_norm and modulated_norm: the same walk over rows with another last line. gated_add_norm is the last of them
// on a sum that it also stores. All but the first may end in 8 bits: the row is then in registers when its largest value is
// known.
namespace flux2::cuda {

namespace {

constexpr int kThreads = 256;

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

template <Norm kind>
__device__ inline float finish(float normal, float weight, float shift) {
  if constexpr (kind == Norm::Layer) return normal;
  else if constexpr (kind == Norm::Rms) return normal * weight;
  else return (1.0f + weight) * normal + shift;
}

// Threads of a block whose rows are held by groups of that many: warps need not wait for each other, so several share a block.
constexpr int block_of(int group) { return group == 32 ? kThreads : group; }

// kGroup threads hold a row in registers, kChunks vectors of V each. columns is a multiple of V, at most kGroup · V · kChunks.
// A block stays for several rows: it reads the modulation once and asks for its next row before it works on the one it has, so
// that memory is busy all the time. kBlocks of them share a multiprocessor.
template <Norm kind, class T, class W, class O, int V, int kGroup, int kChunks, int kBlocks>
__global__ void __launch_bounds__(block_of(kGroup), kBlocks)
    norm_in_registers(const __grid_constant__ Layout<2> rows, const NormArguments<T, W, O> a) {
  constexpr int kRows = block_of(kGroup) / kGroup;
  const int lane = kRows == 1 ? threadIdx.x : threadIdx.x % kGroup;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kRows;
  int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + (kRows == 1 ? 0 : threadIdx.x / kGroup);
  if (row >= rows.count) return;  // a whole group leaves
  const auto for_each_chunk = [&](const auto& f) {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int column = (chunk * kGroup + lane) * V;
      if (column < a.columns) f(chunk, column);
    }
  };
  const auto load = [&]<class P>(P(&packs)[kChunks], const auto* from) {
    for_each_chunk([&](int chunk, int column) { packs[chunk] = load_words<V>(from + column); });
  };
  constexpr bool kGated = kind == Norm::GatedModulated;
  GroupSums<kGroup> sums;

  Words<T, V> in[kChunks], z[kChunks];  // kept as they are stored: half the registers of floats in BF16
  Words<W, V> weight[kChunks] = {}, shift[kChunks] = {}, gate[kChunks];
  int64_t offset[2], batch_end = 0;
  rows.offsets(row, offset);
  load(in, a.x + offset[0]);
  if constexpr (kGated) load(z, a.z + offset[0]);

  for (; row < rows.count; row += step) {
    if (row >= batch_end) {  // before the first row, too
      const int64_t batch = row / a.rows_per_batch;
      batch_end = (batch + 1) * a.rows_per_batch;
      if constexpr (kind != Norm::Layer) load(weight, a.weight + batch * a.weight_stride);
      if constexpr (is_modulated(kind)) load(shift, a.shift + batch * a.shift_stride);
      if constexpr (kGated) load(gate, a.gate + batch * a.gate_stride);
    }
    Words<T, V> next[kChunks], next_z[kChunks];
    int64_t next_offset[2];
    if (row + step < rows.count) {
      rows.offsets(row + step, next_offset);
      load(next, a.x + next_offset[0]);
      if constexpr (kGated) load(next_z, a.z + next_offset[0]);
    }

    if constexpr (kGated)
      for_each_chunk([&](int chunk, int column) {
        in[chunk] = words_of<T, V>([&](int v) { return in[chunk][v] + gate[chunk][v] * z[chunk][v]; });
        store_words(a.sum + offset[1] + column, in[chunk]);
      });
    float mean[1] = {};
    if constexpr (kind != Norm::Rms) {
      for_each_chunk([&](int chunk, int) {
#pragma unroll
        for (int v = 0; v < V; ++v) mean[0] += in[chunk][v];
      });
      sums.add(mean);
      mean[0] /= static_cast<float>(a.columns);
    }
    float squares[1] = {};
    for_each_chunk([&](int chunk, int) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const float d = in[chunk][v] - mean[0];
        squares[0] += d * d;
      }
    });
    sums.add(squares);
    const float inverse = rsqrtf(squares[0] / static_cast<float>(a.columns) + a.eps);

    O* y = a.y + offset[1];
    for_each_chunk([&](int chunk, int column) {
      in[chunk] = words_of<T, V>(
          [&](int v) { return finish<kind>((in[chunk][v] - mean[0]) * inverse, weight[chunk][v], shift[chunk][v]); });
      if constexpr (std::is_same_v<O, T>) store_words(y + column, in[chunk]);
    });
    if constexpr (!std::is_same_v<O, T>) {
      const auto pack = [&](int chunk) -> const Pack<T, V>& { return reinterpret_cast<const Pack<T, V>&>(in[chunk]); };
      Largest largest;
      for_each_chunk([&](int chunk, int) { largest.see(pack(chunk)); });
      const RowScale<O> scale(largest.among<kGroup>());
      if (lane == 0) a.scales[row] = scale.factor;
      for_each_chunk([&](int chunk, int column) { store_pack(y + column, scale.round(pack(chunk))); });
    }

#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      in[chunk] = next[chunk];
      if constexpr (kGated) z[chunk] = next_z[chunk];
    }
    offset[0] = next_offset[0], offset[1] = next_offset[1];
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
    y[c] = from_float<T>(finish<kind>((as_float(x[c]) - mean) * inverse, as_float(weight), as_float(shift)));
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
  constexpr bool kGated = kind == Norm::GatedModulated;
  const auto run = [&]<int kGroup, int kChunks, int kBlocks>() {
    constexpr int kBlock = block_of(kGroup);
    // With two inputs enough loads are in flight anyway: blocks that stay were 2 % slower than a block for each row.
    const unsigned wanted = blocks_for(op, rows.count, kBlock / kGroup),
                   blocks = kGated ? wanted : staying_blocks(wanted, kBlocks);
    norm_in_registers<kind, T, W, O, V, kGroup, kChunks, kBlocks><<<blocks, kBlock, 0, stream.handle()>>>(rows, a);
  };
  if (vectors && a.columns <= 32 * V * 2) run.template operator()<32, 2, kGated ? 2 : 3>();
  else if (vectors && a.columns <= 128 * V * 3) run.template operator()<128, 3, kGated ? 4 : 6>();
  else if (vectors && a.columns <= 128 * V * 4) run.template operator()<128, 4, kGated ? 3 : 4>();
  else if (vectors && a.columns <= 256 * V * 3) run.template operator()<256, 3, kGated ? 2 : 3>();
  else if (vectors && a.columns <= 256 * V * 4) run.template operator()<256, 4, kGated ? 1 : 2>();
  else if constexpr (std::is_same_v<O, T> && !kGated)
    norm_by_walking<kind, T, W><<<blocks_for(op, rows.count, 1), kThreads, 0, stream.handle()>>>(rows, a);
  else return false;
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
